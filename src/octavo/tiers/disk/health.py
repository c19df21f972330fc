"""`Health`: whether the disk works, when to look again, and one line in the log for each turn.

OK --an error, a hang--> DEGRADED --a probe succeeds, and nothing hangs--> OK
                           | ^ a probe fails: wait twice as long, at most a minute
"""

import logging
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from octavo.tiers.base import TierState
from octavo.tiers.disk.io import DiskIO, read_block, replace_file
from octavo.tiers.disk.layout import ALIGNMENT
from octavo.tiers.disk.ledger import Ledger
from octavo.tiers.disk.lock import DirectoryLock
from octavo.tiers.disk.operations import ProbeEnded, Reports, Ticket

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
PROBE_NAME = "probe"
_PROBE_NUMBER = 0
"""In the ledger: segments count from 1."""


class Watchdog:
    """Notices a thread that has been in one call to the disk for too long. Time is what `poll` is given."""

    def __init__(self, tickets: Sequence[Ticket], limit_s: float) -> None:
        self._tickets = tickets
        self._limit_s = limit_s
        self._seen: list[tuple[int | None, float]] = [(None, 0.0)] * len(tickets)

    def longest_s(self, now: float) -> float:
        """How long the longest call has been seen to last, if that is too long; else 0."""
        longest = 0.0
        for i, ticket in enumerate(self._tickets):
            call, (former, since) = ticket.busy_with, self._seen[i]
            if call is None or call != former:
                self._seen[i] = call, now
            elif now - since > self._limit_s:
                longest = max(longest, now - since)
        return longest


class Health:
    """The state of one tier, on the engine's thread; only a probe has a thread, one at a time."""

    def __init__(
        self,
        *,
        directory: Path,
        io: DiskIO,
        lock: DirectoryLock,
        ledger: Ledger,
        segment_bytes: int,
        reports: Reports,
    ) -> None:
        self.state = TierState.OK
        self.reason = ""
        self.num_degradations = 0
        self.probe_ticket = Ticket()
        self._directory = directory
        self._io = io
        self._lock = lock
        self._ledger = ledger
        self._segment_bytes = segment_bytes
        self._reports = reports
        self._pause_s = _FIRST_PAUSE_S
        self._next_probe: float | None = None
        self._is_probing = False

    @property
    def is_ok(self) -> bool:
        return self.state is TierState.OK

    def degrade(self, reason: str) -> None:
        if not self.is_ok:
            return
        self.state, self.reason = TierState.DEGRADED, reason
        self.num_degradations += 1
        self._pause_s, self._next_probe = _FIRST_PAUSE_S, None
        _log.warning("disk tier %s is turned off: %s", self._directory, reason)

    def poll(self, now: float, *, hanging_s: float) -> None:
        """Starts a probe when it is due. While a call hangs there is nothing to learn from another."""
        if hanging_s:
            self.degrade(f"the disk has not answered for {hanging_s:.0f} s")
        if self.is_ok or self._is_probing or hanging_s:
            return
        if self._next_probe is None:
            self._next_probe = now + self._pause_s
        if now >= self._next_probe:
            self._is_probing = True
            try:
                threading.Thread(target=self._probe, name="octavo-disk-probe", daemon=True).start()
            except RuntimeError as error:  # the process may have no more threads
                self._reports.put(ProbeEnded(None, str(error)))

    def probe_ended(self, report: ProbeEnded, *, is_hanging: bool) -> bool:
        """Whether the tier is back."""
        self._is_probing = False
        if report.files is None or is_hanging:
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._next_probe = None
            self.reason = report.reason or self.reason
            return False
        self.state, self.reason = TierState.OK, ""
        _log.warning("disk tier %s is back", self._directory)
        return True

    def _probe(self) -> None:
        try:
            with self.probe_ticket:
                report = ProbeEnded(self._try_disk(), "")
        except Exception as error:  # noqa: BLE001 - whatever it was, the next probe may succeed
            report = ProbeEnded(None, describe(error))
        self._reports.put(report)

    def _try_disk(self) -> dict[str, int]:
        """One small file there and back, and room for a segment; the directory and its lock are made again if they
        are gone."""
        self._io.renew_directory(self._directory)
        self._lock.check()
        word = bytes(range(256)) * (ALIGNMENT // 256)
        try:
            replace_file(self._io, PROBE_NAME, word)
            if read_block(self._io, PROBE_NAME) != word:
                raise OSError(5, "the disk does not give back what it was given")
            self._try_room()
        finally:
            with suppress(OSError):
                self._io.unlink(PROBE_NAME)
        return self._io.list_files()

    def _try_room(self) -> None:
        """Else a full disk would turn the tier off again at the next segment."""
        try:
            self._ledger.set_file(_PROBE_NUMBER, self._segment_bytes)
        except OSError:
            return  # the budget has no room for a segment, so the disk need not
        try:
            fd = self._io.open(PROBE_NAME, os.O_RDWR)
            try:
                self._io.allocate(fd, self._segment_bytes)
            finally:
                self._io.close(fd)
                self._io.unlink(PROBE_NAME)
        finally:
            self._ledger.drop_file(_PROBE_NUMBER)


def describe(error: Exception) -> str:
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)
