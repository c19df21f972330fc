"""`gated_app`: the routes of a server of any kind as one application, with what stands before them."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from octavo.http.config import HttpConfig
from octavo.http.exchange import IGNORED_FIELDS
from octavo.http.gate import Access, Gate
from octavo.http.refusals import REFUSALS
from octavo.http.tenants import Tenant


def gated_app(
    routes: Mapping[Access, Sequence[Route]],
    config: HttpConfig,
    *,
    is_crowded: Callable[[], bool],
    tenants: Sequence[Tenant] = (),
    operator_key: str | None = None,
    friendly_origins: Sequence[str] = (),
) -> Starlette:
    """While `is_crowded`, only `/health` is answered. Pages of `friendly_origins` may use the server."""
    gate = Middleware(
        Gate,
        routes=routes,
        api_key=config.api_key,
        tenants=tenants,
        own_hosts=(config.host, *config.allowed_hosts),
        friendly_origins=friendly_origins,
        is_crowded=is_crowded,
        operator_key=operator_key,
    )
    return Starlette(
        routes=list(chain.from_iterable(routes.values())),
        middleware=[*_cors(friendly_origins), gate],
        exception_handlers=dict(REFUSALS),
    )


def _cors(origins: Sequence[str]) -> list[Middleware]:
    """Lets pages of other sites use the server. It stands before the gate, because a browser asks without a key whether
    a page may send one, and shows refusals to the page too."""
    if not origins:
        return []
    told = (IGNORED_FIELDS, "retry-after")
    methods, headers = ("GET", "POST"), ("*",)
    return [
        Middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=methods, allow_headers=headers, expose_headers=told
        )
    ]
