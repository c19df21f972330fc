"""`Room`: what the file system has for the tier; on the engine's thread.

A disk that is full takes nothing away: reads go on. The limit falls to what the tier has and what is free beyond the
reserve, so the log makes room from its oldest segments. Stores are refused for a pause, which doubles while the disk
stays full.

A disk may take nothing though its file system has room: a quota is used up, or no inodes are left. Then the limit is
what the tier has. If the disk takes nothing either when a segment was given up, others have the room: no more is given
up.
"""

import errno
import logging
from enum import Enum, auto
from pathlib import Path

from octavo.tiers.disk.io import Space
from octavo.units import format_bytes

_log = logging.getLogger(__name__)
_MOST_RESERVED_BYTES = 1 << 30
_RESERVED_SHARE = 50
"""One fiftieth of the file system is left free, and at most `_MOST_RESERVED_BYTES`."""
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_QUOTA_HOLDS_S = 3600.0
"""A quota may be raised, so the tier then tries to get more."""


class _Told(Enum):
    """What was told last. It is not told again while it stays so."""

    NOTHING = auto()
    FULL = auto()
    QUOTA = auto()
    OTHERS = auto()


class _GivingUp(Enum):
    """Whether giving up a segment helps where a quota is used up."""

    NOT_TRIED = auto()
    TRIED = auto()
    IN_VAIN = auto()


def is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def usable_bytes(space: Space) -> int:
    """The bytes that the tier may still write to a file system; negative if the reserve is used up."""
    return space.free_bytes - min(_MOST_RESERVED_BYTES, space.all_bytes // _RESERVED_SHARE)


class Room:
    """The limit of the log, at most the budget."""

    def __init__(self, directory: Path, *, budget_bytes: int, segment_bytes: int) -> None:
        self.limit_bytes = budget_bytes
        self.num_full = 0
        self._directory = directory
        self._budget_bytes = budget_bytes
        self._segment_bytes = segment_bytes
        self._pause_s = _FIRST_PAUSE_S
        self._paused_until: float | None = None
        self._must_pause = False
        self._quota_bytes: int | None = None
        """What the tier had when the disk took no more, while that holds."""
        self._quota_until: float | None = None
        self._giving_up = _GivingUp.NOT_TRIED
        self._told = _Told.NOTHING

    @property
    def is_paused(self) -> bool:
        """Whether stores are refused for now."""
        return self._must_pause or self._paused_until is not None

    def poll(self, now: float) -> None:
        if self._must_pause:
            self._must_pause, self._paused_until = False, now + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._quota_until = now + _QUOTA_HOLDS_S
        elif self._paused_until is not None and now >= self._paused_until:
            self._paused_until = None
        if self._quota_until is not None and now >= self._quota_until:
            self.forget_quota()

    def forget_quota(self) -> None:
        """Time is up, or there is no segment that could be given up: what is stored next tells whether it still
        holds."""
        if self._quota_bytes is not None:
            self._giving_up, self._quota_bytes, self._quota_until = _GivingUp.NOT_TRIED, None, None
            self._set_limit(self._budget_bytes)

    def measured(self, used_bytes: int, room_bytes: int) -> None:
        """A segment or the tier was opened: the tier has `used_bytes`, and the file system `room_bytes` more."""
        self._pause_s = _FIRST_PAUSE_S
        self._giving_up = _GivingUp.NOT_TRIED
        self._set_limit(used_bytes + room_bytes)
        if self.limit_bytes == self._budget_bytes:
            self._told = _Told.NOTHING
        elif self._told is _Told.NOTHING:
            self._tell(_Told.FULL, f"the budget of {format_bytes(self._budget_bytes)} is more than its file system has")

    def seen(self, used_bytes: int, room_bytes: int) -> None:
        """Somebody looked. If the limit leaves no room for a segment, nothing else tells that there is room again."""
        if used_bytes + room_bytes > self.limit_bytes:
            self._set_limit(used_bytes + room_bytes)
            if self._told is _Told.FULL and self.limit_bytes == self._budget_bytes:
                self._told = _Told.NOTHING

    def ran_out(self, used_bytes: int, room_bytes: int) -> None:
        """A write failed for lack of room."""
        self.num_full += 1
        self._must_pause = True
        if room_bytes < self._segment_bytes:
            self._set_limit(used_bytes + room_bytes)
            if self._told is _Told.NOTHING:
                self._tell(_Told.FULL, "its file system is full")
        elif self._giving_up is _GivingUp.NOT_TRIED:
            self._giving_up, self._quota_bytes = _GivingUp.TRIED, used_bytes
            self._set_limit(used_bytes)
            if self._told is not _Told.QUOTA:
                self._tell(_Told.QUOTA, "it gets no more, though its file system has room (a quota, or no inodes left)")
        else:
            self._giving_up, self._quota_bytes = _GivingUp.IN_VAIN, None
            self._set_limit(self._budget_bytes)
            if self._told is not _Told.OTHERS:
                self._told = _Told.OTHERS
                _log.warning(
                    "disk tier %s: it gets no more, though its file system has room (a quota, or no inodes left), and "
                    "not in place of what it gives up: it goes on reading and stores nothing; make room there",
                    self._directory,
                )

    def _set_limit(self, num_bytes: int) -> None:
        most = self._budget_bytes if self._quota_bytes is None else min(self._budget_bytes, self._quota_bytes)
        self.limit_bytes = max(0, min(most, num_bytes))

    def _tell(self, told: _Told, problem: str) -> None:
        self._told = told
        where, room = self._directory, format_bytes(self.limit_bytes)
        if self.limit_bytes >= self._segment_bytes:
            _log.warning(
                "disk tier %s: %s: it goes on reading, keeps to %s, and makes room from its oldest segments",
                where,
                problem,
                room,
            )
        else:
            _log.warning(
                "disk tier %s: %s: it goes on reading and stores nothing, as a segment of %s does not fit into %s; "
                "free some of the file system, or give a smaller size",
                where,
                problem,
                format_bytes(self._segment_bytes),
                room,
            )
