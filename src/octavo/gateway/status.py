"""`StatusServer`: an endpoint picker's page, `/fleet` and `/metrics` over HTTP, beside its gRPC."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from socket import socket

import uvicorn

from octavo.router import FleetRoutes
from octavo.server import HttpConfig, gated_app, http_settings, most_connections, tell_full


class StatusServer(uvicorn.Server):
    """Serves until `should_exit`. It leaves signals to the picker."""

    def __init__(self, routes: FleetRoutes, config: HttpConfig) -> None:
        """The key of the configuration is the operator's."""
        most = most_connections(config)
        app = gated_app(routes.by_access(), config, is_crowded=lambda: len(self.server_state.tasks) > most)
        super().__init__(uvicorn.Config(app, **http_settings(config)))

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Begins to accept."""
        tell_full(asyncio.get_running_loop(), lambda: self.should_exit)
        await super().startup(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures no signals."""
        yield
