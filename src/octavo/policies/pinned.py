"""Chunks that are being read: they are in no order until their last reader is done."""

from collections.abc import Iterator, Sequence

from octavo.chunks import OffloadKey
from octavo.tables import Part, ShardedDict

_READER_BITS = 32
_READERS = (1 << _READER_BITS) - 1


class PinnedChunks:
    """The number of readers of each pinned chunk, and a number that its owner gets back at the end (its slots)."""

    def __init__(self) -> None:
        self._counts = ShardedDict(0)
        self.shards = self._counts.shards
        """The shards of the counts, so that hot loops can look up a key at once."""

    def parts(self) -> Sequence[Part]:
        return self._counts.shards

    def __contains__(self, key: OffloadKey) -> bool:
        return key in self.shards[key[0]]

    def __iter__(self) -> Iterator[OffloadKey]:
        return map(OffloadKey, self._counts)

    def __getitem__(self, key: OffloadKey) -> int:
        """The number that was given when the chunk was pinned."""
        return self.shards[key[0]][key] >> _READER_BITS

    def add(self, key: OffloadKey, value: int) -> None:
        """Adds the first reader of an idle chunk."""
        self.shards[key[0]][key] = value << _READER_BITS | 1

    def add_reader(self, key: OffloadKey) -> None:
        self.shards[key[0]][key] += 1

    def remove_reader(self, key: OffloadKey) -> int | None:
        """Removes one reader. Returns the number that was given at the first pin if this was the last reader."""
        shard = self.shards[key[0]]
        entry = shard[key] - 1
        if entry & _READERS:
            shard[key] = entry
            return None
        del shard[key]
        return entry >> _READER_BITS

    def replace(self, key: OffloadKey, value: int) -> None:
        """Replaces the number to give back; the readers stay."""
        self._counts[key] = value << _READER_BITS | self._counts.get(key) & _READERS

    def forget(self, key: OffloadKey) -> int:
        """Forgets a chunk and its readers. Returns the number that was given when it was pinned."""
        return self.shards[key[0]].pop(key) >> _READER_BITS
