"""`Admission`: how much the server holds for its clients, and whether it takes more.

The engine bounds its own queue. This bounds what lies before it: bodies that are being read and texts that are being
turned into tokens. What does not fit is refused at once, before it is read.
"""

import asyncio
from types import TracebackType
from typing import Self

from octavo.server.errors import overloaded, shutting_down


class Admission:
    """Counts open requests and the bytes of their bodies. It is used from one event loop."""

    def __init__(self, *, most_requests: int, most_bytes: int) -> None:
        self.most_requests = most_requests
        self.most_bytes = most_bytes
        self.num_open = 0
        self.num_bytes = 0
        self._is_closed = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def enter(self) -> "Ticket":
        """Takes one request more, or refuses it."""
        if self._is_closed:
            raise shutting_down()
        if self.num_open >= self.most_requests:
            raise overloaded(f"{self.num_open:,} requests are open already; try again later")
        self.num_open += 1
        self._is_idle.clear()
        return Ticket(self)

    def leave(self, num_bytes: int) -> None:
        """A request has ended."""
        self.num_open -= 1
        self.num_bytes -= num_bytes
        if self.num_open == 0:
            self._is_idle.set()

    def close(self) -> None:
        """Takes no more requests."""
        self._is_closed = True

    async def wait_until_idle(self) -> None:
        """Returns when no request is open."""
        await self._is_idle.wait()


class Ticket:
    """The share of an open request."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._num_bytes = 0

    def add_bytes(self, num_bytes: int) -> None:
        """Takes this number of bytes more of the body, or refuses them."""
        admission = self._admission
        if admission.num_bytes + num_bytes > admission.most_bytes:
            raise overloaded("the bodies of open requests fill the memory set aside for them; try again later")
        admission.num_bytes += num_bytes
        self._num_bytes += num_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admission.leave(self._num_bytes)
