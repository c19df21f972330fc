"""`RouterServer`: the router on a socket: OpenAI's API in front of a fleet, and a look at the fleet."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from octavo.router.address import EngineAddress
from octavo.router.config import RouterConfig
from octavo.router.engine_client import open_engine_client
from octavo.router.engines_file import read_engines_file, watch_engines_file
from octavo.router.fleet import Fleet
from octavo.router.fleet_routes import FleetRoutes, as_json
from octavo.router.metrics import RouterMetrics
from octavo.router.names import LookUp, look_up
from octavo.router.proxy import Proxy
from octavo.server import (
    REFUSALS,
    Access,
    Admission,
    BodyRoute,
    Exchange,
    Gate,
    HttpMetrics,
    SignalledServer,
    Tenant,
    Ticket,
    http_settings,
    most_connections,
    tenants_of,
)

_GENERATING = ("/v1/completions", "/v1/chat/completions", "/v1/responses")


class RouterServer(SignalledServer):
    """A router that serves until it is asked to end. Open requests may go on for a while then."""

    def __init__(self, config: RouterConfig, *, look_up: LookUp = look_up) -> None:
        """`look_up` finds engines that are given by a name."""
        self._config = config
        self._client = open_engine_client()
        listed = () if config.engines_file is None else read_engines_file(config.engines_file)
        self.fleet = Fleet(
            EngineAddress.parse_all((*config.engines, *listed)),
            self._client,
            engine_api_key=config.engine_api_key,
            most_per_engine=config.most_open_per_engine,
            look_up=look_up,
        )
        self.metrics = RouterMetrics()
        tenants = tenants_of(config.tenants, config)
        self.admission = Admission(
            most_requests=config.most_open, most_bytes=config.max_buffered_bytes, is_shared=bool(tenants)
        )
        most = most_connections(config)
        proxy = Proxy(self.fleet, self.metrics.first_token.observe, engine_api_key=config.engine_api_key)
        routes = _Routes(self.fleet, proxy, self.admission, self.metrics, config, tenants=tenants)
        app = routes.app(is_crowded=lambda: len(self.server_state.tasks) > most)
        super().__init__(uvicorn.Config(app, **http_settings(config)))

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves requests, and follows the fleet, until it is asked to end."""
        beside = [asyncio.create_task(self.fleet.run())]
        if self._config.engines_file is not None:
            beside.append(asyncio.create_task(watch_engines_file(self._config.engines_file, self._set_listed)))
        try:
            await super().serve(sockets)
        finally:
            for task in beside:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await self._client.aclose()

    def _set_listed(self, engines: tuple[str, ...]) -> None:
        self.fleet.set_engines(EngineAddress.parse_all((*self._config.engines, *engines)))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Takes no new requests; open ones end or are given up."""
        self.admission.close()
        self.tell_end(self.admission.num_open, self._config.shutdown_timeout_s)
        asyncio.get_running_loop().call_later(self._config.shutdown_timeout_s, self.admission.drop)
        await super().shutdown(sockets)


class _Routes:
    """What the router answers."""

    def __init__(
        self,
        fleet: Fleet,
        proxy: Proxy,
        admission: Admission,
        metrics: RouterMetrics,
        config: RouterConfig,
        *,
        tenants: Sequence[Tenant],
    ) -> None:
        self._fleet = fleet
        self._tenants = tenants
        self._proxy = proxy
        self._admission = admission
        self._metrics = metrics
        self._config = config

    def app(self, *, is_crowded: Callable[[], bool]) -> Starlette:
        config = self._config
        own = [
            *(Route(path, self._generation(path), methods=["POST"]) for path in _GENERATING),
            Route("/v1/models", self._models, methods=["GET"]),
        ]
        routes = FleetRoutes(self._fleet, self._proxy.decisions, self._metrics).by_access() | {Access.OWN: own}
        gate = Middleware(
            Gate,
            routes=routes,
            api_key=config.api_key,
            tenants=self._tenants,
            own_hosts=(config.host, *config.allowed_hosts),
            is_crowded=is_crowded,
            operator_key=config.operator_api_key,
        )
        return Starlette(
            routes=list(chain.from_iterable(routes.values())), middleware=[gate], exception_handlers=dict(REFUSALS)
        )

    def _generation(self, path: str) -> "_Generation":
        return _Generation(path, self._proxy, self._admission, self._metrics, self._config)

    async def _models(self, request: Request) -> Response:
        """The models and their adapters, as the engines name them."""
        told = [member.facts for member in self._fleet.members.values() if member.facts is not None]
        names = sorted(frozenset[str]().union(*(facts.names for facts in told)))
        models = [{"id": name, "object": "model", "owned_by": "octavo"} for name in names]
        return as_json({"object": "list", "data": models})


class _Generation(BodyRoute):
    """The route of a request that is handed on."""

    def __init__(
        self, path: str, proxy: Proxy, admission: Admission, metrics: HttpMetrics, config: RouterConfig
    ) -> None:
        super().__init__(admission, metrics, config)
        self._path = path
        self._proxy = proxy

    async def _serve(self, exchange: Exchange, ticket: Ticket) -> None:
        with ticket.may_be_dropped():
            body = bytes(await exchange.read_body(ticket))
            await exchange.run(self._proxy.answer(exchange, self._path, body))
