"""`Admission`: how much the server holds for its clients, and whether it takes more.

The engine bounds its own queue. This bounds what lies before it: bodies that are being read and texts that are being
turned into tokens. What does not fit is refused at once, before it is read.

Each request takes a place, and one more for each further prompt. Among tenants a request is refused unless as many
places as its tenant then has stay free: one tenant has at most half of all places, two have a third each, and the next
tenant always finds some. No tenant must be known before.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from octavo.http.errors import overloaded, shutting_down
from octavo.units import counted


class Admission:
    """Counts open requests and the bytes of their bodies. It is used from one event loop."""

    def __init__(self, *, most_requests: int, most_bytes: int, is_shared: bool = False) -> None:
        """`is_shared` says that there are tenants."""
        self.most_requests = most_requests
        self.most_bytes = most_bytes
        self.num_open = 0
        self.num_bytes = 0
        self._is_shared = is_shared
        self._places: Counter[str | None] = Counter()
        """By tenant; None is for the server's own key."""
        self.is_closed = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._droppable: set[asyncio.Task[Any]] = set()
        """Each answers a request that can be refused at any time."""

    @property
    def most_prompts(self) -> int:
        """Of one request to an idle server."""
        return max(1, self.most_requests // 2) if self._is_shared else self.most_requests

    def enter(self, tenant: str | None = None) -> "Ticket":
        """Takes one request more, or refuses it."""
        if self.is_closed:
            raise shutting_down()
        self.take_places(tenant, 1)
        self.num_open += 1
        self._is_idle.clear()
        return Ticket(self, tenant)

    def take_places(self, tenant: str | None, count: int) -> None:
        """Takes all of these places, or none and refuses the request."""
        if not count:
            return
        taken, own = self._places.total(), self._places[tenant]
        free = self.most_requests - taken
        if count > free:
            raise overloaded(
                f"{counted(self.most_requests, 'request')} may be open at once, and no more; try again later"
            )
        if self._is_shared and own + count > max(1, free - count):
            raise overloaded(f"your key has {own:,} open requests, and others need room too; try again later")
        self._places[tenant] += count

    def leave(self, tenant: str | None, num_places: int, num_bytes: int) -> None:
        """A request has ended."""
        self.num_open -= 1
        self.num_bytes -= num_bytes
        self._places[tenant] -= num_places
        if not self._places[tenant]:
            del self._places[tenant]
        if self.num_open == 0:
            self._is_idle.set()

    def close(self) -> None:
        """Takes no more requests."""
        self.is_closed = True

    async def wait_until_idle(self) -> None:
        """Returns when no request is open."""
        await self._is_idle.wait()

    def drop(self) -> None:
        """Once it is closed: refuses the requests that would have no other end."""
        for task in self._droppable:
            task.cancel()

    @contextmanager
    def droppable(self) -> Iterator[None]:
        """Meanwhile this task's request can be refused by `drop`."""
        task = asyncio.current_task()
        assert task is not None, "a request is answered in a task"
        self._droppable.add(task)
        try:
            yield
        finally:
            self._droppable.discard(task)


class Ticket:
    """The share of an open request."""

    def __init__(self, admission: Admission, tenant: str | None) -> None:
        self._admission = admission
        self._tenant = tenant
        self._num_places = 1
        self._num_bytes = 0

    def add_prompts(self, count: int) -> None:
        """Takes a place for each of `count` further prompts, or refuses the request."""
        self._admission.take_places(self._tenant, count)
        self._num_places += count

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
        self._admission.leave(self._tenant, self._num_places, self._num_bytes)
