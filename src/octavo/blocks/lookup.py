"""What one group's index holds of one request: `BlockAvailability` over a dict of hashes."""

from collections.abc import Sequence

from octavo.ids import BlockHash, Row

_FIRST_PROBE = 16


class GroupLookup:
    """Answers the resume rule's questions, and remembers the rows that it saw last."""

    __slots__ = ("_first", "_rows", "hashes", "index")

    def __init__(self, index: dict[BlockHash, Row], hashes: Sequence[BlockHash]) -> None:
        self.index = index
        self.hashes = hashes
        self._first = 0
        self._rows: list[Row] = []
        """Rows of the blocks from `_first` on."""

    def first_missing(self, start: int, stop: int) -> int:
        found = self._rows
        if self._first <= start and stop <= self._first + len(found):
            return stop
        stop_of_known = min(stop, len(self.hashes))
        if start < stop_of_known and self.hashes[start] not in self.index:
            self._first, self._rows = start, []
            return start
        rows: list[Row] = []
        probe = _FIRST_PROBE
        while start + len(rows) < stop_of_known:
            at = start + len(rows)
            seen = list(map(self.index.get, self.hashes[at : min(at + probe, stop_of_known)]))
            if None in seen:
                rows += seen[: seen.index(None)]  # type: ignore[arg-type]
                break
            rows += seen  # type: ignore[arg-type]
            probe *= 8
        missing = start + len(rows)
        if missing == stop == self._first and found:
            rows += found  # the part on the left of what was known
        self._first, self._rows = start, rows
        return missing

    def available_until(self, stop: int) -> int:
        known = self.hashes if stop >= len(self.hashes) else self.hashes[:stop]
        last = next(filter(self.index.__contains__, reversed(known)), None)
        return 0 if last is None else known.index(last) + 1

    def rows_of(self, blocks: range) -> list[Row]:
        """The rows of blocks that are there."""
        start = blocks.start - self._first
        if start >= 0 and start + len(blocks) <= len(self._rows):
            return self._rows if len(blocks) == len(self._rows) else self._rows[start : start + len(blocks)]
        return [self.index[block_hash] for block_hash in self.hashes[blocks.start : blocks.stop]]
