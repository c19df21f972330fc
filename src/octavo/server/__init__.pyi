from .config import ServerConfig as ServerConfig
from .offload_view import OffloadReport as OffloadReport, ReadOffload as ReadOffload
from .serving import Server as Server, open_socket as open_socket, url_of as url_of
