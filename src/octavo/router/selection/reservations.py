"""`Reservations`: the requests that were sent to workers and have not ended, as callers tell."""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from http import HTTPStatus

from octavo.http import ApiError, not_found, overloaded
from octavo.router.engine_load import SentRequest
from octavo.router.placement import Placement
from octavo.settings import shown

_MOST = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """One request, and what counts it."""

    placement: Placement
    sent: SentRequest
    expecting: AbstractContextManager[None]
    """Entered; the worker counts as having the prompt."""
    expires_at: float = 0.0

    def end(self) -> None:
        self.expecting.__exit__(None, None, None)
        self.placement.end(self.sent)


class Reservations:
    """By the caller's id. One whose caller is silent for `timeout_s` ends by itself."""

    def __init__(self, clock: Callable[[], float], *, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._bookings: OrderedDict[str, Booking] = OrderedDict()
        """Those that expire first come first."""

    def __len__(self) -> int:
        return len(self._bookings)

    def check_new(self, selection_id: str) -> None:
        """ApiError if the id is in use, or there are too many."""
        self.expire()
        if selection_id in self._bookings:
            raise ApiError(HTTPStatus.CONFLICT, f"selection_id {shown(selection_id)} is reserved already")
        if len(self._bookings) >= _MOST:
            raise overloaded(f"there are {_MOST:,} reservations already; free some")

    def add(self, selection_id: str, booking: Booking) -> None:
        """It lasts from now on."""
        self._bookings[selection_id] = replace(booking, expires_at=self._clock() + self._timeout_s)
        self._bookings.move_to_end(selection_id)

    def find(self, selection_id: str) -> Booking:
        """ApiError if there is none."""
        self.expire()
        if selection_id not in self._bookings:
            raise not_found(f"there is no reservation {shown(selection_id)}: it was freed, or has expired")
        return self._bookings[selection_id]

    def end(self, selection_id: str) -> None:
        """It counts no more."""
        self.find(selection_id)
        self._bookings.pop(selection_id).end()

    def expire(self) -> None:
        """Ends those that nobody spoke of for too long."""
        now = self._clock()
        while self._bookings and next(iter(self._bookings.values())).expires_at <= now:
            self._bookings.popitem(last=False)[1].end()

    def end_all(self) -> None:
        while self._bookings:
            self._bookings.popitem()[1].end()
