"""The engine's server: OpenAI's API over HTTP, metrics, and a page to look at.

exchange, admission, auth     bytes in and out, within bounds
requests -> prompts, sampling -> generation -> completions, chat     from a body to its answer
service, app, serving     what the routes share, the routes, and the socket they are behind
"""

from octavo.server.config import ServerConfig
from octavo.server.offload_view import OffloadReport, ReadOffload
from octavo.server.serving import Server, open_socket, url_of

__all__ = ["OffloadReport", "ReadOffload", "Server", "ServerConfig", "open_socket", "url_of"]
