"""`HttpServer`: a server of any kind, as its configuration has it."""

import asyncio
from collections.abc import Callable
from socket import socket

import uvicorn
from starlette.types import ASGIApp

from octavo.http.accepting import tell_full
from octavo.http.config import HttpConfig
from octavo.http.connection import most_connections
from octavo.http.sockets import http_settings


class HttpServer(uvicorn.Server):
    """Tells its application when it has as many connections as it bears, and once a minute that it can accept none."""

    def __init__(
        self, config: HttpConfig, make_app: Callable[[Callable[[], bool]], ASGIApp], *, last_words_s: float = 0.0
    ) -> None:
        """`make_app` is given what says whether the server is crowded. `last_words_s`: how long streams may take to be
        written out once their requests have ended."""
        most = most_connections(config)
        app = make_app(lambda: len(self.server_state.tasks) > most)
        super().__init__(uvicorn.Config(app, **http_settings(config, last_words_s=last_words_s)))

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Begins to accept."""
        tell_full(asyncio.get_running_loop(), lambda: self.should_exit)
        await super().startup(sockets)
