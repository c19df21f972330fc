"""`Server`: the application on a socket, from the first request to the last, and an end that leaves nothing half done.

When the server is asked to end, it takes no more requests, lets the open ones go on for a while, aborts the rest (their
streams end with a reason), and closes the engine, which writes out what was on its way to slower media.
If it is asked a second time, it aborts at once.
"""

import asyncio
import logging
import socket
from collections.abc import Sequence

from octavo.engine import AsyncEngine
from octavo.http import SignalledServer, Tenant
from octavo.server.app import make_app
from octavo.server.config import ServerConfig
from octavo.server.offload_view import ReadOffload
from octavo.server.service import Service
from octavo.server.work_log import tell_work

_logger = logging.getLogger(__name__)
_LAST_WORDS_S = 10.0
"""The time for streams to be written out once their requests have ended."""


class Server(SignalledServer):
    """A server that owns its engine."""

    def __init__(
        self,
        engine: AsyncEngine,
        config: ServerConfig,
        *,
        read_offload: ReadOffload | None = None,
        tenants: Sequence[Tenant] = (),
    ) -> None:
        self._engine = engine
        self._patience_s = config.shutdown_timeout_s
        self.service = Service(engine, config, read_offload=read_offload, has_tenants=bool(tenants))
        self._is_urgent = asyncio.Event()
        super().__init__(
            config,
            lambda is_crowded: make_app(self.service, is_crowded=is_crowded, tenants=tenants),
            last_words_s=_LAST_WORDS_S,
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to tell what is done, and to remember it."""
        await super().startup(sockets)
        service = self.service
        watches = (tell_work(service.look, service.metrics.latencies.clock), service.history.keep(service.look))
        self._watching = [asyncio.create_task(watch) for watch in watches]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends what is open, in order."""
        self.service.admission.close()
        self.service.load.close()
        for watch in self._watching:
            watch.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        self.tell_end(self.service.admission.num_open, self._patience_s)
        ending = asyncio.ensure_future(self._end_engine())
        await super().shutdown(sockets)
        await ending

    async def on_tick(self, counter: int) -> bool:
        """Uvicorn calls this ten times a second. A server whose engine has died ends too, so that a supervisor can
        start it again."""
        self.should_exit |= self._engine.error is not None
        return await super().on_tick(counter)

    def hurry(self) -> None:
        """Aborts what is open, so that its streams end with a reason."""
        self._is_urgent.set()

    async def _end_engine(self) -> None:
        idle = asyncio.ensure_future(self.service.admission.wait_until_idle())
        urgent = asyncio.ensure_future(self._is_urgent.wait())
        await asyncio.wait((idle, urgent), timeout=self._patience_s, return_when=asyncio.FIRST_COMPLETED)
        idle.cancel()
        urgent.cancel()
        self.service.admission.drop()
        _logger.info("writes what is on its way to memory and tiers")
        await self._engine.close(timeout_s=0)
        _logger.info("ended")
