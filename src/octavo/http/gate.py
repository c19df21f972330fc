"""`Gate`: stands before the routes and decides which requests reach them.

With API keys, a request must show one. Without keys the server relies on its address, and a web page in a browser on
this machine reaches that too. So a request must then name the server by an address or a name that is the server's own
(`Host`), and a browser's request must come from the server's own page, or from a site that may use the server
(`Origin`). Bodies must be JSON in either case: a browser asks before it sends JSON to another site, and the server
agrees for these sites only.

What tells of all clients, as the metrics do, is the operator's, and so is what changes the server for all, as a reset
of its cache does: it needs the operator's key, and not a tenant's. Without keys, a change must come from this machine.
"""

import hmac
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import IntEnum
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.http.errors import ApiError, overloaded
from octavo.http.refusals import as_response
from octavo.http.tenants import Tenant, shown_key

_Headers = dict[bytes, bytes]

TENANT = "octavo.tenant"
"""The key in a request's scope for the tenant whose API key the request has shown."""
_HEALTH = "/health"
_JSON = b"application/json"
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-real-ip")
"""A proxy on this machine adds one of them to what comes from elsewhere."""


class Access(IntEnum):
    """Which key opens a route, the strictest last."""

    OPEN = 0
    """None: it holds nobody's data."""
    OWN = 1
    """Any key: a client gets what is its own, or everybody's."""
    READS_ALL = 2
    """The operator's: it tells of all clients."""
    CHANGES_ALL = 3
    """The operator's: it changes the server for all clients. Without keys, it must come from this machine."""


class Gate:
    """Answers requests that may not reach the routes."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        routes: Mapping[Access, Sequence[Route]],
        api_key: str | None,
        tenants: Sequence[Tenant] = (),
        own_hosts: Collection[str],
        friendly_origins: Collection[str] = (),
        is_crowded: Callable[[], bool],
        operator_key: str | None = None,
    ) -> None:
        """The operator's key opens everything; by default it is the server's own."""
        self._app = app
        self._routes = routes
        own = [] if api_key is None else [(api_key.encode(), None)]
        self._salts: list[tuple[bytes, str | None]] = [*own, *((one.key.encode(), one.tenant) for one in tenants)]
        """(API key, tenant) pairs; None for the tenant of the server's own key."""
        self._operator_key = operator_key or api_key
        self._own_hosts = frozenset(host.lower() for host in own_hosts)
        self._friendly_origins = frozenset(origin.encode() for origin in friendly_origins)
        self._is_crowded = is_crowded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "http":
                self._check(scope)
        except ApiError as error:
            await as_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers: _Headers = dict(scope["headers"])
        _check_framing(scope, headers)
        if self._is_crowded() and scope["path"] != _HEALTH:
            raise overloaded("too many requests are under way; try again later")
        access = self._access_to(scope)
        is_operators = access > Access.OWN
        if not self._salts and not (is_operators and self._operator_key):
            self._check_place(scope, headers, access)
        elif access is not Access.OPEN:
            scope[TENANT] = self._check_key(shown_key(headers.get(b"authorization", b"")), is_operators=is_operators)
        if scope["method"] not in _BODILESS:
            _check_content_type(headers)

    def _access_to(self, scope: Scope) -> Access:
        """The access that a path needs, whatever the method. For an unknown path any key will do."""
        return max(
            (
                access
                for access, routes in self._routes.items()
                if any(route.matches(scope)[0] is not Match.NONE for route in routes)
            ),
            default=Access.OWN,
        )

    def _check_place(self, scope: Scope, headers: _Headers, access: Access) -> None:
        """Checks where a request without a key goes and where it comes from."""
        if (host := headers.get(b"host")) is not None:  # browsers never leave it out, load balancers in HTTP/1.0 do
            self._check_host(host.decode("latin-1"))
        is_change = access is Access.CHANGES_ALL
        if is_change or headers.get(b"origin") not in self._friendly_origins:
            _check_origin(headers)
        if is_change and not _is_from_this_machine(scope, headers):
            raise _forbidden("without keys, this must come from the server's own machine: start it with --api-key")

    def _check_key(self, shown: bytes, *, is_operators: bool) -> str | None:
        """The tenant whose key is shown; None if the key belongs to no tenant."""
        if self._operator_key is None and is_operators:
            raise _forbidden("this is the operator's, and the server has no key but tenants': start it with --api-key")
        if self._operator_key is not None and hmac.compare_digest(shown, self._operator_key.encode()):
            return None
        found = [salt for key, salt in self._salts if hmac.compare_digest(shown, key)]
        if not found:
            raise _unauthorized()
        if is_operators:
            raise _forbidden("this is the operator's: a client's or tenant's key may not do it")
        return found[0]

    def _check_host(self, host: str) -> None:
        name = _name_of(host)
        if not name:
            raise _forbidden(
                "the request's Host header names no server: use this one's address, or a name that --allowed-host gives"
            )
        if not (_is_address(name) or name == "localhost" or name.endswith(".localhost") or name in self._own_hosts):
            raise _forbidden(
                f"this server is not known as {name!r}: use its address, or start it with --allowed-host {name}"
            )


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


def _check_framing(scope: Scope, headers: _Headers) -> None:
    """Refuses a body whose end two servers may see in two places (RFC 9112, 6.1), and closes the connection: a proxy
    before this server could take the rest of one client's body for the next client's request."""
    if b"transfer-encoding" in headers and (b"content-length" in headers or scope["http_version"] == "1.0"):
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            "the request has both Content-Length and Transfer-Encoding, or is HTTP/1.0 with the latter: its end is not "
            "certain; send one of them",
            headers={"connection": "close"},
        )


def _check_content_type(headers: _Headers) -> None:
    has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
    kind = headers.get(b"content-type")
    if (kind is not None or has_body) and (kind or b"").partition(b";")[0].strip().lower() != _JSON:
        raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be JSON, with content-type: application/json")
    encoding = headers.get(b"content-encoding", b"identity").decode("latin-1")
    if has_body and encoding.lower() != "identity":
        raise ApiError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"the body must be JSON as it is, without content-encoding: {encoding:.40}",
            headers={"accept-encoding": "identity"},
        )


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
