"""`GroupBlocks`: which blocks of one group are on one medium, and who holds them.

A publisher tells blocks of the group's own size, or chunks of several blocks by the hash of their last block:

    tokens       0    16    32    48    64
    own blocks   [ h0 ][ h1 ][ h2 ][ h3 ]       block_size = 16
    a chunk      [          h3          ]       block_size = 64: h0 to h3 are there

A medium may hold a block several times, since chunks that begin alike share their first blocks. A publisher that tells
every copy (vLLM's self-describing offload events) is counted. Others tell a removal once, for the last copy.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from octavo.events.messages import ExternalHash

_MOST_SIZES = 64
"""The most block sizes of all publishers together. Each has few (`held_blocks`), so that one takes none from others."""
_BLOCKS_PER_PART = 4096


class Removed(NamedTuple):
    """What became of a removal."""

    num_blocks: int
    """The blocks that the holder had and no longer has."""
    may_be_left: bool
    """Whether the publisher may still hold a block that is gone here."""


class GroupBlocks:
    """A holder is a bit here: 0b10 is the second publisher. A block's holders are the bits of an integer."""

    def __init__(self, block_size: int, *, may_tell_copies: bool) -> None:
        """`may_tell_copies`: whether what is told again may be a copy, so that a removal leaves others."""
        self.block_size = block_size
        self._may_tell_copies = may_tell_copies
        self.by_size: dict[int, dict[ExternalHash, int]] = {block_size: {}}
        """Block size -> hash -> the holders."""
        self._copies: dict[tuple[int, int, ExternalHash], int] = {}
        """(block size, holder, hash) -> copies beyond the first."""
        self._told_again: set[tuple[int, int, ExternalHash]] = set()
        """Blocks that were stored again by a publisher that does not count: other copies may be left."""

    def can_take(self, block_size: int) -> bool:
        """Whether blocks of this size can be stored: all publishers together have few sizes."""
        return block_size in self.by_size or len(self.by_size) < _MOST_SIZES

    def store(self, hashes: Sequence[ExternalHash], *, block_size: int, holder: int, is_counted: bool) -> int:
        """The holder has the blocks; if they are counted, one more copy of each. Returns how many are new to it."""
        holders = self.by_size.setdefault(block_size, {})
        fresh = dict.fromkeys(hashes, holder)
        if len(fresh) == len(hashes) and holders.keys().isdisjoint(fresh):
            holders.update(fresh)
            return len(fresh)
        num_new = 0
        for block_hash in hashes:
            before = holders.get(block_hash, 0)
            holders[block_hash] = before | holder
            if not before & holder:
                num_new += 1
            else:
                key = block_size, holder, block_hash
                if is_counted:
                    self._copies[key] = self._copies.get(key, 0) + 1
                elif self._may_tell_copies:
                    self._told_again.add(key)
        return num_new

    def remove(self, hashes: Sequence[ExternalHash], *, holder: int) -> "Removed":
        """Removes one counted copy of each block, or the block."""
        may_be_left = False
        num_blocks = 0
        for block_hash in hashes:
            block_size = self._size_of(block_hash, holder)
            key = block_size, holder, block_hash
            if copies := self._copies.pop(key, 0):
                if copies > 1:
                    self._copies[key] = copies - 1
                continue
            if key in self._told_again:
                self._told_again.discard(key)
                may_be_left = True
            holders = self.by_size[block_size]
            before = holders.get(block_hash, 0)
            num_blocks += bool(before & holder)
            left = before & ~holder
            if left:
                holders[block_hash] = left
            else:
                holders.pop(block_hash, None)
        return Removed(num_blocks, may_be_left)

    def is_held_by(self, holder: int) -> bool:
        """Whether the holder has a block here."""
        return any(bits & holder for holders in self.by_size.values() for bits in holders.values())

    def parts(self) -> Iterator[tuple[int, list[ExternalHash]]]:
        """Block size and hashes of all blocks, some at a time. Blocks may come and go between two parts: those that are
        there as it begins with their size are told."""
        for block_size, holders in list(self.by_size.items()):
            hashes = list(holders)
            for start in range(0, len(hashes), _BLOCKS_PER_PART):
                yield block_size, hashes[start : start + _BLOCKS_PER_PART]

    def held_by(self, holder: int, block_size: int, hashes: Iterable[ExternalHash]) -> list[ExternalHash]:
        """Those of the blocks that the holder has."""
        get = self.by_size.get(block_size, {}).get  # the last block of a size may be gone by now
        return [block_hash for block_hash in hashes if get(block_hash, 0) & holder]

    def take_over(self, holder: int, others: "GroupBlocks", other: int) -> int:
        """The holder, who has nothing yet, gets what another one has there. Returns the number of blocks."""
        num_blocks = 0
        for block_size, holders in others.by_size.items():
            hashes = [block_hash for block_hash, bits in holders.items() if bits & other]
            if hashes:
                num_blocks += self.store(hashes, block_size=block_size, holder=holder, is_counted=False)
        for (block_size, of, block_hash), copies in others._copies.items():  # noqa: SLF001 - of the same class
            if of == other:
                self._copies[block_size, holder, block_hash] = copies
        told_again = others._told_again  # noqa: SLF001 - of the same class
        self._told_again |= {(size, holder, block_hash) for size, of, block_hash in told_again if of == other}
        return num_blocks

    def sweep(self, gone: int) -> Iterator[int]:
        """Removes holders that are gone, a bounded number of blocks at a time: yields how many it looked at."""
        for block_size, part in self.parts():
            holders = self.by_size[block_size]
            for block_hash in part:
                before = holders.get(block_hash, 0)
                if before & gone:
                    if before & ~gone:
                        holders[block_hash] = before & ~gone
                    else:
                        del holders[block_hash]
            yield len(part)
        self._copies = {key: copies for key, copies in self._copies.items() if not key[1] & gone}
        self._told_again = {key for key in self._told_again if not key[1] & gone}

    def shed(self) -> None:
        """Forgets the sizes of which there is no block left."""
        self.by_size = {size: holders for size, holders in self.by_size.items() if holders or size == self.block_size}

    def _size_of(self, block_hash: ExternalHash, holder: int) -> int:
        """A removal names no block size: chunks first, as no block of the own size is told beside its chunk."""
        if len(self.by_size) > 1:
            for size, holders in self.by_size.items():
                if size != self.block_size and holders.get(block_hash, 0) & holder:
                    return size
        return self.block_size


class BlocksInPrompt:
    """One holder's blocks of one group and one prompt, on several media: the answer to `BlockAvailability`."""

    def __init__(
        self, media: Sequence[GroupBlocks], hashes: Sequence[ExternalHash], *, hash_block_size: int, holder: int
    ) -> None:
        self._holder = holder
        self._by_size = _by_size(media, hashes, hash_block_size)
        self._block_size = media[0].block_size if media else hash_block_size
        self._num_blocks = len(hashes) * hash_block_size // self._block_size if media else 0

    def first_missing(self, start: int, stop: int) -> int:
        stop = min(stop, self._num_blocks)
        return next((block for block in range(start, stop) if not self._has(block)), max(start, stop))

    def available_until(self, stop: int) -> int:
        return next((end for end in range(min(stop, self._num_blocks), 0, -1) if self._has(end - 1)), 0)

    def _has(self, block: int) -> bool:
        for size, on_media, hashes in self._by_size:
            parts = _parts_of(block, self._block_size, size)
            if parts.stop <= len(hashes) and all(
                any(holders.get(hashes[i], 0) & self._holder for holders in on_media) for i in parts
            ):
                return True
        return False


def holders_in_prompt(
    media: Sequence[GroupBlocks], hashes: Sequence[ExternalHash], *, hash_block_size: int
) -> list[int]:
    """By block of one group and one prompt: who holds it, on any of these media."""
    if not media:
        return []
    block_size = media[0].block_size
    answer = [0] * (len(hashes) * hash_block_size // block_size)
    for size, on_media, of_size in _by_size(media, hashes, hash_block_size):
        lists = [list(map(holders.get, of_size, [0] * len(of_size))) for holders in on_media]
        held = lists[0]
        for more in lists[1:]:
            held = list(map(int.__or__, held, more))
        if size == block_size:
            answer = held if not any(answer) else list(map(int.__or__, answer, held))
            continue
        for block in range(len(answer)):
            parts = _parts_of(block, block_size, size)
            if parts.stop <= len(held):
                answer[block] |= _intersection(held[parts.start : parts.stop])
    return answer


def _by_size(
    media: Sequence[GroupBlocks], hashes: Sequence[ExternalHash], hash_block_size: int
) -> list[tuple[int, list[Mapping[ExternalHash, int]], Sequence[ExternalHash]]]:
    """Block size, its tables on the media, and the hashes of the prompt's blocks of this size."""
    tables: dict[int, list[Mapping[ExternalHash, int]]] = {}
    for blocks in media:
        for size, holders in blocks.by_size.items():
            if holders:
                tables.setdefault(size, []).append(holders)
    return [
        (size, on_media, hashes[size // hash_block_size - 1 :: size // hash_block_size])
        for size, on_media in tables.items()
    ]


def _parts_of(block: int, block_size: int, size: int) -> range:
    """The blocks of another size that hold a block's tokens."""
    return range(block * block_size // size, -(-(block + 1) * block_size // size))


def _intersection(sets: Sequence[int]) -> int:
    common = -1
    for each in sets:
        common &= each
    return common
