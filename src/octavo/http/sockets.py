"""The socket that a server listens on, and the settings of uvicorn over it."""

import errno
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any

from octavo.errors import InputError
from octavo.http.config import HttpConfig
from octavo.http.connection import SPARE_CONNECTIONS, Connection, check_files, most_connections

_BACKLOG = 128
_OTHER_HOST = "give an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them"
_REMEDIES: Mapping[int | None, str] = {
    errno.EADDRINUSE: "give another port, or 0 for a free one",
    errno.EACCES: "give a port from 1024 on, as this user may not take lower ones",
}


def open_socket(config: HttpConfig) -> socket.socket:
    """A listening socket, bound before anything slow is done."""
    check_files()
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # Without the protocol asyncio does not know that it is TCP, and leaves Nagle's delay of 40 ms on.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((config.host, config.port))
        listener.listen(_BACKLOG)
    except (OSError, UnicodeError) as error:
        listener.close()
        remedy = _REMEDIES.get(getattr(error, "errno", 0), _OTHER_HOST)
        raise InputError(f"cannot listen on {config.host} port {config.port}: {error}; {remedy}") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """The address of a listening socket, for a browser."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def http_settings(config: HttpConfig, *, last_words_s: float = 0.0) -> dict[str, Any]:
    """The settings of uvicorn for every server here."""
    return {
        "lifespan": "off",
        "ws": "none",
        "log_config": None,
        "access_log": config.access_log,
        "server_header": False,
        "http": partial(Connection, send_timeout_s=config.send_timeout_s),
        "backlog": _BACKLOG,
        "limit_concurrency": most_connections(config) + SPARE_CONNECTIONS,
        "timeout_keep_alive": config.keep_alive_s,
        "timeout_graceful_shutdown": int(config.shutdown_timeout_s + last_words_s) + 1,
    }
