"""`BodyRoute`: the shell of every route that reads a body: those of an engine's server and of a router.

It counts the request in and out, refuses what went wrong, and is silent where nobody listens any more.
"""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress

from starlette.types import Receive, Scope, Send

from octavo.http.admission import Admission, Ticket
from octavo.http.config import HttpConfig
from octavo.http.errors import as_api_error, shutting_down
from octavo.http.exchange import ClientGoneError, Exchange
from octavo.http.metrics import HttpMetrics

_LAST_WORDS_S = 0.5
"""The time for a refusal at the end: its client may not read."""


class BodyRoute(ABC):
    """An ASGI application rather than a function of a request: what it holds lives as long as its answer."""

    def __init__(self, admission: Admission, metrics: HttpMetrics, config: HttpConfig) -> None:
        self._admission = admission
        self._metrics = metrics
        self._config = config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, self._config)
        try:
            await self._serve_or_refuse(exchange)
        except ClientGoneError:
            self._metrics.clients_gone.inc()
        else:
            self._metrics.count_answer(scope["path"], exchange.status)

    async def _serve_or_refuse(self, exchange: Exchange) -> None:
        """Also tells the client of what went wrong. ClientGoneError if nobody listens to that either."""
        try:
            with self._admission.enter(exchange.tenant) as ticket:
                await self._serve(exchange, ticket)
        except ClientGoneError:
            raise
        except asyncio.CancelledError:  # the server waits no longer
            if not self._admission.is_closed:
                raise
            with suppress(TimeoutError, ClientGoneError):
                async with asyncio.timeout(_LAST_WORDS_S):
                    await exchange.refuse(shutting_down())
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told something
            await exchange.refuse(as_api_error(error))

    @abstractmethod
    async def _serve(self, exchange: Exchange, ticket: Ticket) -> None:
        """Reads the body and answers. Whatever it raises, the client is told."""
