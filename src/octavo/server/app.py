"""The server's application: routes, and what stands before them."""

import time
from collections.abc import Callable, Sequence
from secrets import token_hex

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from octavo.engine import Engine, published_plan
from octavo.errors import InputError
from octavo.http import (
    CONTENT_TYPE,
    TENANT,
    Access,
    EngineFacts,
    Tenant,
    as_json,
    bad_request,
    gated_app,
    not_durable,
    read_page,
    shutting_down,
)
from octavo.server.answer_bodies import encode
from octavo.server.generation_route import GenerationRoute
from octavo.server.page_state import PageStates
from octavo.server.service import Service
from octavo.server.tokenize_route import DetokenizeRoute, TokenizeRoute
from octavo.settings import shown

_JSON = "application/json"
_LINES = "application/x-ndjson"
_TRUTHS = {"true": True, "false": False}


def make_app(service: Service, *, is_crowded: Callable[[], bool], tenants: Sequence[Tenant] = ()) -> Starlette:
    """All routes over one service. While `is_crowded`, only `/health` is answered."""
    plain = _PlainRoutes(service)
    routes = {
        Access.OPEN: [
            Route("/health", plain.health, methods=["GET"]),
            Route("/", plain.page, methods=["GET"]),
        ],
        Access.OWN: [
            Route("/v1/completions", GenerationRoute(service, service.read_completion), methods=["POST"]),
            Route("/v1/chat/completions", GenerationRoute(service, service.read_chat), methods=["POST"]),
            Route("/v1/responses", GenerationRoute(service, service.read_turn), methods=["POST"]),
            Route("/tokenize", TokenizeRoute(service), methods=["POST"]),
            Route("/detokenize", DetokenizeRoute(service), methods=["POST"]),
            Route("/v1/models", plain.models, methods=["GET"]),
            Route("/v1/models/{name:path}", plain.model, methods=["GET"]),
            Route("/why/{request_id}", plain.why, methods=["GET"]),
        ],
        Access.READS_ALL: [
            Route("/metrics", plain.metrics, methods=["GET"]),
            Route("/plan", plain.plan, methods=["GET"]),
            Route("/engine", plain.engine, methods=["GET"]),
            Route("/load", plain.load, methods=["GET"]),
            Route("/state", plain.state, methods=["GET"]),
            Route("/history", plain.history, methods=["GET"]),
        ],
        Access.CHANGES_ALL: [Route("/reset_prefix_cache", plain.reset_prefix_cache, methods=["POST"])],
    }
    origins = service.config.cors_origins
    return gated_app(routes, service.config, is_crowded=is_crowded, tenants=tenants, friendly_origins=origins)


class _PlainRoutes:
    """Routes that answer at once."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._states = PageStates(service)
        self._created = int(time.time())
        self._life = token_hex(8)
        self._page = read_page(__package__)

    async def models(self, request: Request) -> Response:
        """The one that is served."""
        return as_json({"object": "list", "data": [self._about_model()]})

    async def model(self, request: Request) -> Response:
        """Tells of one model, which the path names."""
        self._service.check_model(request.path_params["name"])
        return as_json(self._about_model())

    async def health(self, request: Request) -> Response:
        """Whether requests are welcome."""
        error = self._service.engine.error
        if error is not None:
            raise shutting_down(f"the engine has died: {type(error).__name__}")
        if self._service.admission.is_closed or not self._service.engine.is_open:
            raise shutting_down()
        return as_json({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        """The metrics, for Prometheus."""
        seen = await self._service.look()
        snapshot, offload = (None, None) if seen is None else seen
        return Response(self._service.metrics.render(snapshot, offload), media_type=CONTENT_TYPE)

    async def reset_prefix_cache(self, request: Request) -> Response:
        """Forgets what is cached on the device and in memory; with `?tiers=true` on all media, and for good once the
        answer says success."""
        wanted = request.query_params.get("tiers", "false")
        if wanted not in _TRUTHS:
            raise bad_request(f"tiers = {shown(wanted)} must be true or false", param="tiers")
        if not await self._service.engine.reset_prefix_cache(tiers=_TRUTHS[wanted]):
            raise not_durable()
        return as_json({"status": "ok"})

    async def plan(self, request: Request) -> Response:
        """The groups and their resume rules, as routers need them to read the events."""
        return as_json(published_plan(self._service.engine.engine.manager.config))

    async def engine(self, request: Request) -> Response:
        """The facts that a router needs."""
        engine, model = self._service.engine.engine, self._service.config.model_name
        return as_json(_facts_of(engine, model=model, life=self._life))

    async def load(self, request: Request) -> Response:
        """The load that all but `?router=` have sent: a line whenever it changes."""
        headers = {"cache-control": "no-store"}
        if request.method == "HEAD":  # the lines never end
            return Response(media_type=_LINES, headers=headers)
        router = request.query_params.get("router", "")
        lines = (encode(load) + b"\n" async for load in self._service.load.news(router))
        return StreamingResponse(lines, media_type=_LINES, headers=headers)

    async def state(self, request: Request) -> Response:
        """The state that the page shows."""
        return Response(await self._states.get(), media_type=_JSON, headers={"cache-control": "no-store"})

    async def why(self, request: Request) -> Response:
        """Why a recent request resumed where it did."""
        report = await self._service.why(request.path_params["request_id"], request.scope.get(TENANT))
        return as_json(report)

    async def history(self, request: Request) -> Response:
        """The page's last ten minutes."""
        points = msgspec.json.encode(list(self._service.history.points))
        return Response(points, media_type=_JSON, headers={"cache-control": "no-store"})

    async def page(self, request: Request) -> Response:
        """The page itself; it asks for `state`."""
        return self._page

    def _about_model(self) -> dict[str, object]:
        return {
            "id": self._service.config.model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "octavo",
            "max_model_len": self._service.engine.engine.max_model_len,
        }


def _facts_of(engine: Engine, *, model: str, life: str) -> EngineFacts:
    """`life` is new at each start."""
    try:
        plan = published_plan(engine.manager.config)
    except InputError:  # the engine warned of it when it started
        plan = None
    endpoints = [*engine.event_endpoints, None, None]
    hasher = engine.manager.hasher
    return EngineFacts(
        model=model,
        max_model_len=engine.max_model_len,
        plan=plan,
        events=endpoints[0],
        replay=endpoints[1],
        hash_algorithm=hasher.algorithm,
        hash_seed=hasher.seed,
        stores=dict(engine.stores),
        life=life,
    )
