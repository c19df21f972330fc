"""`StatusServer`: an endpoint picker's page, `/fleet` and `/metrics` over HTTP, beside its gRPC."""

from collections.abc import Iterator
from contextlib import contextmanager

from octavo.http import HttpConfig, HttpServer, gated_app
from octavo.router import FleetRoutes


class StatusServer(HttpServer):
    """Serves until `should_exit`. It leaves signals to the picker."""

    def __init__(self, routes: FleetRoutes, config: HttpConfig) -> None:
        """The key of the configuration is the operator's."""
        super().__init__(config, lambda is_crowded: gated_app(routes.by_access(), config, is_crowded=is_crowded))

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures no signals."""
        yield
