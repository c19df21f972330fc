"""`follow_load`: hears from an engine what other routers have sent there, as long as it tells that."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus

import httpx
import msgspec

from octavo.errors import MALFORMED
from octavo.http import LOAD_HEARTBEAT_S, Load

_logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 5.0
_HEARTBEATS_UNTIL_SILENT = 3
_RETRY_S = 1.0
_LONGEST_LINE = 4096
_LOAD = msgspec.json.Decoder(Load)


async def follow_load(
    client: httpx.AsyncClient, url: str, router: str, headers: Mapping[str, str], hear: Callable[[Load], None]
) -> None:
    """Follows one engine until it is cancelled, or until the engine turns out to tell nothing. While it cannot be
    followed, the load of others is not known, and counts as none."""
    timeout = httpx.Timeout(_CONNECT_TIMEOUT_S, read=_HEARTBEATS_UNTIL_SILENT * LOAD_HEARTBEAT_S)
    while True:
        try:
            async with client.stream(
                "GET", f"{url}/load", params={"router": router}, headers=headers, timeout=timeout
            ) as answer:
                if answer.status_code == HTTPStatus.NOT_FOUND:
                    return
                await _hear_lines(answer.raise_for_status(), hear)
        except (httpx.HTTPError, *MALFORMED) as error:
            _logger.debug("what others have sent to %s is not known: %s", url, error)
        finally:
            hear(Load())
        await asyncio.sleep(_RETRY_S)


async def _hear_lines(answer: httpx.Response, hear: Callable[[Load], None]) -> None:
    """Of lines that came together only the last one counts, since each tells all there is."""
    begun = b""
    async for piece in answer.aiter_raw():
        *lines, begun = (begun + piece).split(b"\n")
        if len(begun) > _LONGEST_LINE:
            raise msgspec.DecodeError(f"a line exceeds {_LONGEST_LINE} bytes")
        if lines:
            hear(_LOAD.decode(lines[-1]))
