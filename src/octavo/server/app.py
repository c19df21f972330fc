"""The server's application: routes, and what stands before them."""

import time
from collections.abc import Callable
from http import HTTPStatus
from importlib.resources import files

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from octavo.engine import published_plan
from octavo.errors import OctavoError
from octavo.server.errors import ApiError, as_api_error, not_durable, shutting_down
from octavo.server.gate import Gate
from octavo.server.generation_route import GenerationRoute
from octavo.server.metrics import CONTENT_TYPE
from octavo.server.page_state import PageStates
from octavo.server.responses import encode
from octavo.server.service import Service

_JSON = "application/json"
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-cache",
    "referrer-policy": "no-referrer",
}


def make_app(service: Service, *, is_crowded: Callable[[], bool]) -> Starlette:
    """All routes over one service. While `is_crowded`, only `/health` is answered."""
    plain = _PlainRoutes(service)
    config = service.config
    gate = Middleware(
        Gate, api_key=config.api_key, own_hosts=(config.host, *config.allowed_hosts), is_crowded=is_crowded
    )
    return Starlette(
        routes=[
            Route("/v1/completions", GenerationRoute(service, service.read_completion), methods=["POST"]),
            Route("/v1/chat/completions", GenerationRoute(service, service.read_chat), methods=["POST"]),
            Route("/v1/models", plain.models, methods=["GET"]),
            Route("/v1/models/{name:path}", plain.model, methods=["GET"]),
            Route("/health", plain.health, methods=["GET"]),
            Route("/metrics", plain.metrics, methods=["GET"]),
            Route("/reset_prefix_cache", plain.reset_prefix_cache, methods=["POST"]),
            Route("/plan", plain.plan, methods=["GET"]),
            Route("/state", plain.state, methods=["GET"]),
            Route("/", plain.page, methods=["GET"]),
        ],
        middleware=[gate],
        exception_handlers={HTTPException: _refuse_http, OctavoError: _refuse, Exception: _refuse},
    )


class _PlainRoutes:
    """Those that answer at once."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._states = PageStates(service)
        self._created = int(time.time())
        self._page = files(__package__).joinpath("page.html").read_bytes()

    async def models(self, request: Request) -> Response:
        """The one that is served."""
        return _json({"object": "list", "data": [self._about_model()]})

    async def model(self, request: Request) -> Response:
        """By name."""
        self._service.check_model(request.path_params["name"])
        return _json(self._about_model())

    async def health(self, request: Request) -> Response:
        """Whether requests are welcome."""
        error = self._service.engine.error
        if error is not None:
            raise shutting_down(f"the engine has died: {type(error).__name__}")
        if self._service.admission.is_closed or not self._service.engine.is_open:
            raise shutting_down()
        return _json({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        """For Prometheus."""
        seen = await self._service.look()
        snapshot, offload = (None, None) if seen is None else seen
        return Response(self._service.metrics.render(snapshot, offload), media_type=CONTENT_TYPE)

    async def reset_prefix_cache(self, request: Request) -> Response:
        """Everything that is cached is forgotten, on all media: for good, once it is answered with success."""
        if not await self._service.engine.reset_prefix_cache():
            raise not_durable()
        return _json({"status": "ok"})

    async def plan(self, request: Request) -> Response:
        """The groups and their resume rules, as routers need them to read the events."""
        return _json(published_plan(self._service.engine.engine.manager.config))

    async def state(self, request: Request) -> Response:
        """What the page shows."""
        return Response(await self._states.get(), media_type=_JSON, headers={"cache-control": "no-store"})

    async def page(self, request: Request) -> Response:
        """The page itself; it asks for `state`."""
        return Response(self._page, media_type="text/html", headers=_PAGE_HEADERS)

    def _about_model(self) -> dict[str, object]:
        return {
            "id": self._service.config.model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "octavo",
            "max_model_len": self._service.engine.engine.max_model_len,
        }


def _json(message: object) -> Response:
    return Response(encode(message), media_type=_JSON)


async def _refuse(_: Request, error: Exception) -> Response:
    return _refusal(as_api_error(error))


async def _refuse_http(request: Request, error: Exception) -> Response:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    message = f"{request.method} {request.url.path}: {status.phrase.lower()}"
    return _refusal(ApiError(status, message, headers=error.headers))


def _refusal(error: ApiError) -> Response:
    return Response(error.body, error.status, error.headers, _JSON)
