"""`Departures`: the blocks that left a medium lately, and how. They tell why a request could not resume."""

import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from octavo.chunks.keys import OffloadKey
from octavo.tables import Recent

_FEWEST_KEYS = 1 << 15
"""The departures that are remembered of each medium, at the least."""
_TOLD_BEFORE_S = 10.0
"""A tier says that a chunk is gone within this time after a read of it failed."""
_MOST_MEDIA = 16
"""A third party's tiers may name media as they like; departures from further ones are not remembered."""


class Leaving(StrEnum):
    """How a block left a medium."""

    EVICTED = "evicted"
    """Given up for others."""
    QUOTA = "quota"
    """Given up since its tenant has no more room."""
    UNREADABLE = "unreadable"
    """It could not be read back. The medium may still have it."""
    DAMAGED = "damaged"
    """Its bytes were not those that were stored: its checksum did not match."""


class Departure(NamedTuple):
    """One block, or one chunk, that left one medium."""

    medium: str
    how: Leaving
    rule: str
    """What chose it, such as a policy's name."""
    at: float
    """By the clock of the log."""
    by: str
    """The request for which room was made; empty where nobody knows."""


class Departures:
    """The newest departures from each medium. Nothing is told of a block that comes back: it is there then."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.by = ""
        """The request for which room is being made now."""
        self._by_medium: dict[str, Recent[OffloadKey, Departure]] = {}

    def note(self, keys: Sequence[OffloadKey], medium: str, how: Leaving, *, rule: str = "", by: str = "") -> None:
        """These left the medium now."""
        if not keys:
            return
        departures = self._of(medium)
        if departures is not None:
            departures.put(keys, Departure(medium, how, rule, self.clock(), by))

    def note_gone(self, keys: Sequence[OffloadKey], medium: str, *, rule: str) -> None:
        """The medium says that it no longer has these. Those that could not be read from it were damaged."""
        departures = self._of(medium)
        if departures is None:
            return
        for key in keys:
            now, before = self.clock(), departures.get(key)
            is_told = before is not None and now - before.at < _TOLD_BEFORE_S
            if before is None or not is_told or before.how is Leaving.EVICTED:
                departures.put((key,), Departure(medium, Leaving.EVICTED, rule, now, ""))
            elif before.how is Leaving.UNREADABLE:
                departures.put((key,), Departure(medium, Leaving.DAMAGED, "", now, ""))

    def find(self, key: OffloadKey) -> list[Departure]:
        """The last one from each medium, the newest last."""
        found = (departures.get(key) for departures in self._by_medium.values())
        return sorted((departure for departure in found if departure is not None), key=lambda departure: departure.at)

    def last(self, key: OffloadKey) -> Departure | None:
        """The newest from any medium."""
        last = None
        for departures in self._by_medium.values():
            departure = departures.get(key)
            if departure is not None and (last is None or departure.at >= last.at):
                last = departure
        return last

    @property
    def has_forgotten(self) -> bool:
        """Whether a block may have left without being found here."""
        return any(departures.has_forgotten for departures in self._by_medium.values())

    def clear(self) -> None:
        """Everything was forgotten on all media."""
        for departures in self._by_medium.values():
            departures.clear()

    def _of(self, medium: str) -> Recent[OffloadKey, Departure] | None:
        if medium not in self._by_medium and len(self._by_medium) < _MOST_MEDIA:
            self._by_medium[medium] = Recent(_FEWEST_KEYS)
        return self._by_medium.get(medium)
