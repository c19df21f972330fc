"""`StatusServer`: an endpoint picker's page, `/fleet` and `/metrics` over HTTP, beside its gRPC."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from socket import socket

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware

from octavo.router import FleetRoutes
from octavo.server import REFUSALS, Gate, HttpConfig, http_settings, most_connections, tell_full


class StatusServer(uvicorn.Server):
    """Serves until `should_exit`. It leaves signals to the picker."""

    def __init__(self, routes: FleetRoutes, config: HttpConfig) -> None:
        """The key of the configuration is the operator's."""
        by_access, most = routes.by_access(), most_connections(config)
        gate = Middleware(
            Gate,
            routes=by_access,
            api_key=config.api_key,
            own_hosts=(config.host, *config.allowed_hosts),
            is_crowded=lambda: len(self.server_state.tasks) > most,
        )
        all_routes = list(chain.from_iterable(by_access.values()))
        app = Starlette(routes=all_routes, middleware=[gate], exception_handlers=dict(REFUSALS))
        super().__init__(uvicorn.Config(app, **http_settings(config)))

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Begins to accept."""
        tell_full(asyncio.get_running_loop(), lambda: self.should_exit)
        await super().startup(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures no signals."""
        yield
