"""`Gate`: stands before the routes and decides which requests reach them.

With API keys, a request must show one. Without keys the server relies on its address, and a web page in a browser on
this machine reaches that too. So a request must then name the server by an address or a name that is the server's own
(`Host`), and a browser's request must come from the server's own page (`Origin`). Bodies must be JSON in either case: a
browser asks before it sends JSON to another site, and the server never agrees.
"""

import hmac
from collections.abc import Callable, Collection
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.errors import ApiError, overloaded

_Headers = dict[bytes, bytes]

_HEALTH = "/health"
_OPEN_PATHS = frozenset({"/", _HEALTH})
"""They need no key. The page holds nobody's data: it asks for the key before it shows numbers."""
_SCHEME = b"bearer "
_JSON = b"application/json"
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})


class Gate:
    """Answers requests that may not reach the routes."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        api_key: str | None,
        own_hosts: Collection[str],
        is_crowded: Callable[[], bool],
    ) -> None:
        self._app = app
        self._key = None if api_key is None else api_key.encode()
        self._own_hosts = frozenset(host.lower() for host in own_hosts)
        self._is_crowded = is_crowded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "http":
                self._check(scope)
        except ApiError as error:
            response = Response(error.body, error.status, error.headers, "application/json")
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers: _Headers = dict(scope["headers"])
        if self._is_crowded() and scope["path"] != _HEALTH:
            raise overloaded("too many requests are under way; try again later")
        if self._key is None:
            self._check_host(headers.get(b"host", b"").decode("latin-1"))
            _check_origin(headers)
        elif scope["path"] not in _OPEN_PATHS:
            _check_key(headers, self._key)
        if scope["method"] not in _BODILESS:
            _check_content_type(headers)

    def _check_host(self, host: str) -> None:
        name = _name_of(host)
        if not (_is_address(name) or name == "localhost" or name.endswith(".localhost") or name in self._own_hosts):
            raise _forbidden(
                f"this server is not known as {name!r}: use its address, or start it with --allowed-host {name}"
            )


def _check_origin(headers: _Headers) -> None:
    origin = headers.get(b"origin")
    if origin is None:
        return
    try:
        asking = urlsplit(origin.decode("latin-1")).netloc.lower()
    except ValueError:
        asking = ""
    if not asking or asking != headers.get(b"host", b"").decode("latin-1").lower():
        raise _forbidden("a page of another site may not use this server without an API key (--api-key)")


def _check_key(headers: _Headers, key: bytes) -> None:
    shown = headers.get(b"authorization", b"")
    has_scheme = shown[: len(_SCHEME)].lower() == _SCHEME
    if not (has_scheme and hmac.compare_digest(shown[len(_SCHEME) :].strip(), key)):
        raise ApiError(
            HTTPStatus.UNAUTHORIZED,
            "this server wants its API key, as 'Authorization: Bearer KEY'",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )


def _check_content_type(headers: _Headers) -> None:
    has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
    kind = headers.get(b"content-type")
    if (kind is not None or has_body) and (kind or b"").partition(b";")[0].strip().lower() != _JSON:
        raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be JSON, with content-type: application/json")


def _name_of(host: str) -> str:
    """The name or address of a `Host` header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    """An address cannot be pointed at another machine, as a name can."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _forbidden(message: str) -> ApiError:
    return ApiError(HTTPStatus.FORBIDDEN, message, code="forbidden")
