"""`RequireKey`: lets only those in who show the server's API key."""

import hmac
from http import HTTPStatus

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.errors import ApiError

OPEN_PATHS = frozenset({"/", "/health"})
"""The page holds nothing of anybody's: it asks for the key before it shows numbers."""
_SCHEME = b"bearer "


class RequireKey:
    """Stands before the routes."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app = app
        self._key = api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS and not self._is_shown(scope):
            response = _REFUSAL
            await Response(response.body, response.status, response.headers, "application/json")(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_shown(self, scope: Scope) -> bool:
        shown: bytes = dict(scope["headers"]).get(b"authorization", b"")
        has_scheme = shown[: len(_SCHEME)].lower() == _SCHEME
        return has_scheme and hmac.compare_digest(shown[len(_SCHEME) :].strip(), self._key)


_REFUSAL = ApiError(
    HTTPStatus.UNAUTHORIZED,
    "this server wants its API key, as 'Authorization: Bearer KEY'",
    code="invalid_api_key",
    headers={"www-authenticate": "Bearer"},
)
