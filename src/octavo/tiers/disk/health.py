"""`DiskHealth`: an error or a hang turns the disk off, until a probe succeeds and nothing hangs."""

import logging
import os
import threading
from collections.abc import Sequence
from contextlib import suppress

from octavo.tiers.disk.directory import OpenedDirectory
from octavo.tiers.disk.io import NotOursError, read_block, replace_file
from octavo.tiers.disk.layout import ALIGNMENT
from octavo.tiers.disk.operations import ProbeEnded, Reports, Ticket
from octavo.tiers.health import Health

_log = logging.getLogger(__name__)
PROBE_NAME = "probe"
_PROBE_NUMBER = 0
"""The probe's number in the ledger: segments count from 1."""


class Watchdog:
    """Notices a thread that has been in one call to the disk for too long. `poll` tells it the time."""

    def __init__(self, tickets: Sequence[Ticket], limit_s: float) -> None:
        self._tickets = tickets
        self._limit_s = limit_s
        self._seen: list[tuple[int | None, float]] = [(None, 0.0)] * len(tickets)

    def longest_s(self, now: float) -> float:
        """How long the longest call has lasted, if that is too long; else 0."""
        longest = 0.0
        for i, ticket in enumerate(self._tickets):
            call, (former, since) = ticket.busy_with, self._seen[i]
            if call is None or call != former:
                self._seen[i] = call, now
            elif now - since > self._limit_s:
                longest = max(longest, now - since)
        return longest


class DiskHealth(Health):
    """The health of one tier's disk. Only a probe has a thread."""

    def __init__(self, opened: OpenedDirectory, reports: Reports, *, segment_bytes: int) -> None:
        super().__init__(f"disk tier {opened.path}")
        self.probe_ticket = Ticket()
        self._directory = opened.path
        self._io = opened.io
        self._lock = opened.lock
        self._ledger = opened.ledger
        self._segment_bytes = segment_bytes
        self._reports = reports

    def ended(self, kind: str, error: OSError | None, problem: str) -> None:
        """A call of this kind has ended. An error turns the disk off until one works: the probe writes elsewhere."""
        if error is None:
            self.worked(kind)
        else:
            self._failures[kind] += 1
            self.degrade(f"{problem}: {describe(error)}")

    def tell_of_stuck(self, name: str, error: OSError) -> None:
        """A file that cannot be deleted turns nothing off: where the disk takes nothing at all, writes notice it."""
        _log.warning(
            "disk tier: %s cannot be deleted: %s; its room stays taken, and it is tried again now and then",
            self._directory / name,
            describe(error),
        )

    def poll(self, now: float, *, hanging_s: float) -> None:
        """Starts a probe when it is due. While a call hangs another call would tell nothing new."""
        if hanging_s:
            self.degrade(f"the disk has not answered for {hanging_s:.0f} s")
        elif self.is_probe_due(now):
            try:
                threading.Thread(target=self._probe, name="octavo-disk-probe", daemon=True).start()
            except RuntimeError as error:  # the process may have no more threads
                self._reports.put(ProbeEnded(None, str(error)))

    def probe_ended(self, report: ProbeEnded, *, is_hanging: bool) -> bool:
        """Whether the tier works again."""
        self.probed(report.reason if report.files is None or is_hanging else None)
        return self.is_ok

    def _probe(self) -> None:
        try:
            with self.probe_ticket:
                report = ProbeEnded(self._try_disk(), "")
        except Exception as error:  # noqa: BLE001 - whatever it was, the next probe may succeed
            report = ProbeEnded(None, describe(error))
        self._reports.put(report)

    def _try_disk(self) -> dict[str, int]:
        """Writes and reads one small file, and checks the room for a segment. The directory and its lock are made again
        if they are gone."""
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
        """Checks that the disk has room for a segment. Without it the next segment would turn the tier off again."""
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
    if not isinstance(error, OSError):
        return str(error)
    told = error.strerror or type(error).__name__
    return f"{error.filename}: {told}" if isinstance(error, NotOursError) and error.filename else told
