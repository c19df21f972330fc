"""`Ingress`: the deployment that clients reach. It finds the prompt's tokens and hands the request to an engine.

If an engine is lost before its answer has begun, another one gets the request; not once a byte has gone to the client.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from http import HTTPStatus
from typing import Any, cast

import msgspec
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from octavo.errors import MALFORMED
from octavo.http import (
    Access,
    Admission,
    ApiError,
    BodyRoute,
    Exchange,
    Headers,
    HttpConfig,
    HttpMetrics,
    Ticket,
    gated_app,
    tenants_of,
)
from octavo.ray.arguments import Arguments
from octavo.ray.handed import AnswerPart, HandedRequest, Head
from octavo.router import SESSION, NoTokensError, read_tokens, short_text

_logger = logging.getLogger(__name__)

MOST_OPEN = 4096
"""The most open requests; more are refused."""
_GENERATING = ("/v1/completions", "/v1/chat/completions", "/v1/responses")
_ABOUT_TOKENS = ("/tokenize", "/detokenize")
_ABOUT_MODELS = ("/v1/models", "/v1/models/{name:path}")
_NOT_HANDED_BACK = b"access-control-"
"""Headers that only the ingress sets: it decides which pages may read an answer."""


@serve.ingress()
class Ingress:
    """OpenAI's API over the engines of a deployment."""

    def __init__(self, engines: DeploymentHandle, arguments: Arguments) -> None:
        self._engines = engines.options(stream=True).answer
        self._config = arguments.server

    def __serve_build_asgi_app__(self) -> Starlette:
        """Ray calls this in the ingress's replica."""
        config = self._config
        tenants = tenants_of(config.tenants, config)
        admission = Admission(most_requests=MOST_OPEN, most_bytes=config.max_buffered_bytes, is_shared=bool(tenants))
        metrics = HttpMetrics()
        posts = [
            Route(path, _HandedRoute(path, self, admission, metrics, config), methods=["POST"])
            for path in (*_GENERATING, *_ABOUT_TOKENS)
        ]
        routes = {
            Access.OPEN: [Route("/health", self._hand_on, methods=["GET"])],
            Access.OWN: [*posts, *(Route(path, self._hand_on, methods=["GET"]) for path in _ABOUT_MODELS)],
        }
        origins = config.cors_origins
        return gated_app(routes, config, is_crowded=lambda: False, tenants=tenants, friendly_origins=origins)

    async def answer(self, exchange: Exchange, path: str, body: bytes) -> None:
        """Answers one request with a body."""
        request = HandedRequest(method="POST", path=path, headers=list(exchange.headers.items()), body=body)
        question = await self._question(request, exchange.tenant) if path in _GENERATING else {}
        async with aclosing(self._ask(request, question)) as parts:
            head = cast("Head", await anext(parts))
            headers = [*_handed_back(head), (b"x-octavo-engine", head.replica.encode())]
            await exchange.relay(head.status, headers, cast("AsyncIterator[bytes]", parts))

    async def _hand_on(self, asked: Request) -> Response:
        """Hands on a request without a body."""
        path = asked.scope["path"].removeprefix(asked.scope.get("root_path", ""))
        head, body = await self._whole(HandedRequest(method="GET", path=path, headers=asked.headers.raw))
        answer = Response(body, head.status)
        answer.raw_headers = _handed_back(head)
        return answer

    async def _question(self, request: HandedRequest, tenant: str | None) -> dict[str, Any]:
        """The router's question about a prompt; empty for one that cannot be read: an engine says why."""
        session = short_text(dict(request.headers).get(SESSION.encode(), b"").decode("latin-1"))
        try:
            fields = msgspec.json.decode(request.body, type=dict[str, Any])
            tokens = await read_tokens(fields, lambda body: self._tokenize(request, body))
        except (*MALFORMED, NoTokensError) as error:
            _logger.debug("the tokens of a prompt are not known: %s", error)
            return {"session_id": session}
        return {
            "token_ids": tokens,
            "cache_salt": tenant or short_text(fields.get("cache_salt")),
            "session_id": session or short_text(fields.get("prompt_cache_key")),
        }

    async def _tokenize(self, request: HandedRequest, body: bytes) -> bytes:
        head, answer = await self._whole(
            replace(request, path="/tokenize", headers=_with_length(request, body), body=body)
        )
        if head.status != HTTPStatus.OK:
            raise NoTokensError(answer.decode(errors="replace"))
        return answer

    async def _whole(self, request: HandedRequest) -> tuple[Head, bytes]:
        async with aclosing(self._ask(request, {})) as parts:
            head = cast("Head", await anext(parts))
            return head, b"".join([cast("bytes", part) async for part in parts])

    async def _ask(self, request: HandedRequest, question: dict[str, Any]) -> AsyncGenerator[AnswerPart]:
        """An engine's answer. If the engine is lost before it begins, another engine is asked."""
        for is_last in (False, False, True):
            call, has_begun = self._engines.remote(request, **question), False
            try:
                async for part in call:
                    has_begun = True
                    yield part
            except RayActorError as error:
                if has_begun or is_last:
                    raise ApiError(HTTPStatus.BAD_GATEWAY, "the engine went away", code="engine_gone") from error
            else:
                return
            finally:
                call.cancel()  # does nothing once the answer has ended


class _HandedRoute(BodyRoute):
    """A route that reads a body and hands it on."""

    def __init__(self, path: str, ingress: Any, admission: Admission, metrics: HttpMetrics, config: HttpConfig) -> None:
        super().__init__(admission, metrics, config)
        self._path = path
        self._ingress = ingress

    async def _serve(self, exchange: Exchange, ticket: Ticket) -> None:
        body = bytes(await exchange.read_body(ticket))
        await exchange.run(self._ingress.answer(exchange, self._path, body))


def _handed_back(head: Head) -> Headers:
    return [(name, value) for name, value in head.headers if not name.startswith(_NOT_HANDED_BACK)]


def _with_length(request: HandedRequest, body: bytes) -> Headers:
    others = [(name, value) for name, value in request.headers if name != b"content-length"]
    return [*others, (b"content-length", str(len(body)).encode())]
