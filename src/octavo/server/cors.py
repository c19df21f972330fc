"""Pages of other sites that may use a server."""

from collections.abc import Sequence

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from octavo.server.exchange import IGNORED_FIELDS


def cors(origins: Sequence[str]) -> list[Middleware]:
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
