"""`Gate`: stands before the routes and decides which requests reach them.

With API keys, a request must show one. Without keys the server relies on its address, and a web page in a browser on
this machine reaches that too. So a request must then name the server by an address or a name that is the server's own
(`Host`), and a browser's request must come from the server's own page, or from a site that may use the server
(`Origin`). Bodies must be JSON in either case: a browser asks before it sends JSON to another site, and the server
agrees for these sites only.

What changes a server for everybody, as a reset of its cache does, is its operator's: it needs the operator's key, and
not a tenant's. Without keys, it must come from this machine.
"""

import hmac
from collections.abc import Callable, Collection, Sequence
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.errors import ApiError, overloaded
from octavo.server.tenants import Tenant

_Headers = dict[bytes, bytes]

TENANT = "octavo.tenant"
"""In the scope of a request: the tenant whose key it has shown."""
_HEALTH = "/health"
_OPEN_PATHS = frozenset({"/", _HEALTH})
"""They need no key. The page holds nobody's data: it asks for the key before it shows numbers."""
_SCHEME = b"bearer "
_JSON = b"application/json"
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-real-ip")
"""A proxy on this machine adds one of them to what comes from elsewhere."""


class Gate:
    """Answers requests that may not reach the routes."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        api_key: str | None,
        tenants: Sequence[Tenant] = (),
        own_hosts: Collection[str],
        friendly_origins: Collection[str] = (),
        is_crowded: Callable[[], bool],
        is_operators: Callable[[str], bool] = lambda _: False,
        operator_key: str | None = None,
    ) -> None:
        """`is_operators` says of a path whether it is the operator's, whose key is the server's own by default."""
        self._app = app
        own = [] if api_key is None else [(api_key.encode(), None)]
        self._salts: list[tuple[bytes, str | None]] = [*own, *((one.key.encode(), one.tenant) for one in tenants)]
        """By key."""
        self._is_operators = is_operators
        self._operator_key = operator_key or api_key
        self._own_hosts = frozenset(host.lower() for host in own_hosts)
        self._friendly_origins = frozenset(origin.encode() for origin in friendly_origins)
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
        if self._is_operators(scope["path"]):
            self._check_operator(scope, headers)
        elif not self._salts:
            self._check_host(headers.get(b"host", b"").decode("latin-1"))
            if headers.get(b"origin") not in self._friendly_origins:
                _check_origin(headers)
        elif scope["path"] not in _OPEN_PATHS:
            scope[TENANT] = self._find_tenant(headers)
        if scope["method"] not in _BODILESS:
            _check_content_type(headers)

    def _check_operator(self, scope: Scope, headers: _Headers) -> None:
        """Whoever may use the model need not change it for all others."""
        if self._operator_key is not None:
            if not hmac.compare_digest(_shown_key(headers), self._operator_key.encode()):
                if self._salts:
                    self._find_tenant(headers)
                    raise _forbidden("this is the operator's: a client's or tenant's key may not do it")
                raise _unauthorized()
        elif self._salts:
            raise _forbidden("this is the operator's, and the server has no key but tenants': start it with --api-key")
        else:
            self._check_host(headers.get(b"host", b"").decode("latin-1"))
            _check_origin(headers)
            if not _is_from_this_machine(scope, headers):
                raise _forbidden("without keys, this must come from the server's own machine: start it with --api-key")

    def _find_tenant(self, headers: _Headers) -> str | None:
        """Whose the shown key is; None for the server's own key."""
        shown = _shown_key(headers)
        found = [salt for key, salt in self._salts if hmac.compare_digest(shown, key)]
        if not found:
            raise _unauthorized()
        return found[0]

    def _check_host(self, host: str) -> None:
        name = _name_of(host)
        if not (_is_address(name) or name == "localhost" or name.endswith(".localhost") or name in self._own_hosts):
            raise _forbidden(
                f"this server is not known as {name!r}: use its address, or start it with --allowed-host {name}"
            )


def _shown_key(headers: _Headers) -> bytes:
    """Empty, which is no key, if there is none."""
    shown = headers.get(b"authorization", b"")
    return shown[len(_SCHEME) :].strip() if shown[: len(_SCHEME)].lower() == _SCHEME else b""


def _is_from_this_machine(scope: Scope, headers: _Headers) -> bool:
    client = HTTPConnection(scope).client
    if client is None or any(name in headers for name in _FORWARDED):
        return False
    try:
        address = ip_address(client.host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


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


def _unauthorized() -> ApiError:
    return ApiError(
        HTTPStatus.UNAUTHORIZED,
        "this server wants its API key, as 'Authorization: Bearer KEY'",
        code="invalid_api_key",
        headers={"www-authenticate": "Bearer"},
    )


def _forbidden(message: str) -> ApiError:
    return ApiError(HTTPStatus.FORBIDDEN, message, code="forbidden")
