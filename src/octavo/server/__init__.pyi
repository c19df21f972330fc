from .app import make_app as make_app
from .config import ServerConfig as ServerConfig
from .metrics import METRICS as METRICS
from .offload_view import OffloadReport as OffloadReport, ReadOffload as ReadOffload, view_tiers as view_tiers
from .service import Service as Service
from .serving import Server as Server
