"""`RouterServer`: the router on a socket: OpenAI's API in front of a fleet, and a look at the fleet."""

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from octavo.http import (
    Access,
    Admission,
    BodyRoute,
    Exchange,
    HttpMetrics,
    SignalledServer,
    Tenant,
    Ticket,
    as_json,
    gated_app,
    tenants_of,
)
from octavo.router.address import EngineAddress
from octavo.router.config import RouterConfig
from octavo.router.engine_client import open_engine_client
from octavo.router.engines_file import read_engines_file, watch_engines_file
from octavo.router.fleet import Fleet
from octavo.router.fleet_routes import FleetRoutes
from octavo.router.metrics import RouterMetrics
from octavo.router.names import LookUp, look_up
from octavo.router.proxy import Proxy

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
        proxy = Proxy(self.fleet, self.metrics.first_token.observe, engine_api_key=config.engine_api_key)
        routes = _Routes(self.fleet, proxy, self.admission, self.metrics, config, tenants=tenants)
        super().__init__(config, routes.app)

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
        self._created = int(time.time())

    def app(self, is_crowded: Callable[[], bool]) -> Starlette:
        config = self._config
        own = [
            *(Route(path, self._generation(path), methods=["POST"]) for path in _GENERATING),
            Route("/v1/models", self._models, methods=["GET"]),
            Route("/v1/models/{name:path}", self._model, methods=["GET"]),
        ]
        routes = FleetRoutes(self._fleet, self._proxy.decisions, self._metrics).by_access() | {Access.OWN: own}
        return gated_app(
            routes, config, is_crowded=is_crowded, tenants=self._tenants, operator_key=config.operator_api_key
        )

    def _generation(self, path: str) -> "_Generation":
        return _Generation(path, self._proxy, self._admission, self._metrics, self._config)

    async def _models(self, request: Request) -> Response:
        """The models and their adapters, as the engines name them."""
        return as_json({"object": "list", "data": list(self._about_models().values())})

    async def _model(self, request: Request) -> Response:
        """Tells of one of them, which the path names."""
        name, models = request.path_params["name"], self._about_models()
        if name not in models:
            raise self._fleet.unknown_model(name)
        return as_json(models[name])

    def _about_models(self) -> dict[str, dict[str, object]]:
        """By name; with the longest context of the engines that have it, where they tell theirs."""
        longest: dict[str, int] = {}
        for member in self._fleet.members.values():
            if member.facts is not None:
                for name in member.facts.names:
                    longest[name] = max(longest.get(name, 0), member.facts.max_model_len)
        return {name: self._about_model(name, longest[name]) for name in sorted(longest)}

    def _about_model(self, name: str, longest: int) -> dict[str, object]:
        about = {"id": name, "object": "model", "created": self._created, "owned_by": "octavo"}
        return {**about, "max_model_len": longest} if longest else about


class _Generation(BodyRoute):
    """The route of a request that is handed on."""

    def __init__(
        self, path: str, proxy: Proxy, admission: Admission, metrics: HttpMetrics, config: RouterConfig
    ) -> None:
        super().__init__(admission, metrics, config)
        self._path = path
        self._proxy = proxy

    async def _serve(self, exchange: Exchange, ticket: Ticket) -> None:
        with self._admission.droppable():
            body = bytes(await exchange.read_body(ticket))
            await exchange.run(self._proxy.answer(exchange, self._path, body))
