"""`Deletions`: the segments whose files are to go, and the marker of a reset while some of them may still be there.

The marker says that all segments below its floor are dead, whenever they go. It is cleared when the last of them has
gone. What cannot be deleted or marked is ordered again, once a minute and when the disk works again.
"""

from collections.abc import Set as AbstractSet

from octavo.tiers.disk.operations import ClearReset, DeleteSegment, MarkReset
from octavo.tiers.disk.segment import Segment
from octavo.tiers.disk.writer import Writer

_RETRY_S = 60.0
"""Between two attempts to delete a segment."""


class Deletions:
    """The deletions of one directory."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._leaving: dict[int, Segment] = {}
        """Segments whose deletion is ordered, or was tried in vain."""
        self._undeleted: set[int] = set()
        """Those whose deletion has failed and is not ordered again yet."""
        self._stuck: set[int] = set()
        """Those whose deletion has failed, and has not succeeded since."""
        self._retry_at = 0.0
        self._reset_floor = 0
        self._num_marks_ordered = 0
        self._unmarked = False
        """Whether the last marker of a reset could not be written."""

    @property
    def numbers(self) -> AbstractSet[int]:
        return self._leaving.keys()

    @property
    def has_stuck(self) -> bool:
        return bool(self._stuck)

    @property
    def undeleted_bytes(self) -> int:
        """Bytes of the segments that could not be deleted, and are not ordered again yet."""
        return sum(self._leaving[number].file_bytes for number in self._undeleted)

    def order(self, segment: Segment) -> None:
        self._leaving[segment.number] = segment
        self._writer.submit(DeleteSegment(segment))

    def ended(self, segment: Segment, *, has_failed: bool) -> None:
        """Handles the end of a deletion."""
        if has_failed:
            self._stuck.add(segment.number)
            self._undeleted.add(segment.number)
            return
        del self._leaving[segment.number]
        self._stuck.discard(segment.number)
        if self._reset_floor and not any(number < self._reset_floor for number in self._leaving):
            self._reset_floor = 0
            self._writer.submit(ClearReset())

    def is_due(self, now: float) -> bool:
        """Whether it is time to try again."""
        if not self._undeleted:
            self._retry_at = now + _RETRY_S
        return bool(self._undeleted) and now >= self._retry_at

    def take_undeleted(self) -> list[Segment]:
        """The segments that could not be deleted, to be ordered again."""
        undeleted, self._undeleted = self._undeleted, set()
        return [self._leaving[number] for number in sorted(undeleted)]

    # The marker of a reset

    def mark_reset(self, floor: int) -> None:
        """All segments below this number are dead."""
        self._reset_floor = floor
        self._order_mark()

    def mark_again(self) -> None:
        """Orders the last marker again if it could not be written and is still needed."""
        if self._unmarked and self._reset_floor:
            self._unmarked = False
            self._order_mark()

    def reset_marked(self, *, has_failed: bool) -> None:
        """The writer has written a marker, or could not."""
        self._num_marks_ordered -= 1
        self._unmarked = has_failed

    @property
    def is_reset_durable(self) -> bool:
        """Whether a marker is durable, or every file that it would name is gone."""
        return not self._num_marks_ordered and not (self._unmarked and self._reset_floor)

    def _order_mark(self) -> None:
        self._num_marks_ordered += 1
        self._writer.submit(MarkReset(self._reset_floor))
