"""`open_engine_client`: the HTTP client that asks a fleet's engines.

It asks for all clients of a router, so it keeps no cookies and follows no redirects. Answers are handed on as they
come, so it asks for none that is compressed.
"""

from typing import Any

import httpx

from octavo.router.engine_connections import EngineConnections

_CONNECT_TIMEOUT_S = 5.0
_NOT_READ = ("location", "set-cookie")
"""Headers of answers that httpx would act on by itself. A router follows no redirect, and some of them (`mailto:x`)
httpx cannot even read: it raises an error that is no httpx.HTTPError. One client's cookie would go to the engine with
the next one's request."""


def open_engine_client() -> httpx.AsyncClient:
    """Opens no connection."""
    return httpx.AsyncClient(
        timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S),
        transport=EngineConnections(hidden_headers=_NOT_READ),
        headers={"accept-encoding": "identity"},
        trust_env=False,
    )


async def ask_whole(
    client: httpx.AsyncClient, method: str, url: str, *, most_bytes: int, **more: Any
) -> httpx.Response:
    """The whole answer. httpx.ReadError if it is longer than that: an address may lead to a server that never ends."""
    async with client.stream(method, url, **more) as answer:
        body = bytearray()
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > most_bytes:
                raise httpx.ReadError(f"its answer exceeds {most_bytes:,} bytes")
    return httpx.Response(answer.status_code, content=bytes(body), request=answer.request)
