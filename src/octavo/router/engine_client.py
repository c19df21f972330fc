"""`open_engine_client`: the HTTP client that asks a fleet's engines.

It asks for all clients of a router, so it keeps no cookies and follows no redirects. Answers are handed on as they
come, so it asks for none that is compressed.
"""

from typing import Any

import httpx

from octavo.router.engine_connections import EngineConnections

_CONNECT_TIMEOUT_S = 5.0


def open_engine_client() -> httpx.AsyncClient:
    """Opens no connection."""
    return httpx.AsyncClient(
        timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S),
        transport=EngineConnections(),
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
