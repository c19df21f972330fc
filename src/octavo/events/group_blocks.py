"""`GroupBlocks`: which blocks of one group a publisher holds, and on which media.

A publisher tells blocks of the group's own size, or chunks of several blocks by the hash of their last block:

    tokens       0    16    32    48    64
    own blocks   [ h0 ][ h1 ][ h2 ][ h3 ]       block_size = 16
    a chunk      [          h3          ]       block_size = 64: h0 to h3 are there

A medium may hold a block several times, since chunks that begin alike share their first blocks. A publisher that tells
every copy (vLLM's self-describing offload events) is counted. Others tell a removal once, for the last copy.
"""

from collections.abc import Iterable, Sequence

from octavo.events.messages import ExternalHash


class GroupBlocks:
    """A medium is a bit here: `bit` 0b10 is the second medium that the publisher named."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._media: dict[int, dict[ExternalHash, int]] = {block_size: {}}
        """Block size -> hash -> the media that hold the block, as bits."""
        self._copies: dict[tuple[int, int, ExternalHash], int] = {}
        """(block size, bit, hash) -> copies beyond the first."""
        self._told_again: set[tuple[int, int, ExternalHash]] = set()
        """Blocks that were stored again by a publisher that does not count: other copies may be left."""

    def store(self, hashes: Iterable[ExternalHash], *, block_size: int, bit: int, is_counted: bool) -> None:
        """The blocks are on a medium; if they are counted, as one more copy of each."""
        media = self._media.setdefault(block_size, {})
        for block_hash in hashes:
            before = media.get(block_hash, 0)
            media[block_hash] = before | bit
            if before & bit:
                key = block_size, bit, block_hash
                if is_counted:
                    self._copies[key] = self._copies.get(key, 0) + 1
                else:
                    self._told_again.add(key)

    def remove(self, hashes: Iterable[ExternalHash], *, bit: int) -> bool:
        """Removes one counted copy of each block, or the block. Returns whether the publisher may still hold a block
        that is gone here."""
        may_hold_more = False
        for block_hash in hashes:
            block_size = self._size_of(block_hash, bit)
            key = block_size, bit, block_hash
            if copies := self._copies.pop(key, 0):
                if copies > 1:
                    self._copies[key] = copies - 1
                continue
            if key in self._told_again:
                self._told_again.discard(key)
                may_hold_more = True
            media = self._media[block_size]
            left = media.get(block_hash, 0) & ~bit
            if left:
                media[block_hash] = left
            else:
                media.pop(block_hash, None)
        return may_hold_more

    def clear(self) -> None:
        self._media = {self.block_size: {}}
        self._copies.clear()
        self._told_again.clear()

    def hashes(self, bits: int) -> set[ExternalHash]:
        """The blocks and chunks on these media."""
        return {block_hash for media in self._media.values() for block_hash, on in media.items() if on & bits}

    def in_prompt(self, hashes: Sequence[ExternalHash], hash_block_size: int, bits: int) -> "BlocksInPrompt":
        """The group's blocks of one prompt on these media, given the hashes of the prompt's hash blocks."""
        by_size = []
        for size, media in self._media.items():
            ratio = size // hash_block_size
            by_size.append((size, media, hashes[ratio - 1 :: ratio]))
        return BlocksInPrompt(self.block_size, len(hashes) * hash_block_size // self.block_size, by_size, bits)

    def _size_of(self, block_hash: ExternalHash, bit: int) -> int:
        """A removal names no block size: chunks first, as no block of the own size is told beside its chunk."""
        for size, media in self._media.items():
            if size != self.block_size and media.get(block_hash, 0) & bit:
                return size
        return self.block_size


class BlocksInPrompt:
    """One group's blocks of one prompt: the answer to `BlockAvailability`."""

    def __init__(
        self,
        block_size: int,
        num_blocks: int,
        by_size: Sequence[tuple[int, dict[ExternalHash, int], Sequence[ExternalHash]]],
        bits: int,
    ) -> None:
        self._block_size = block_size
        self._num_blocks = num_blocks
        self._by_size = by_size
        self._bits = bits

    def first_missing(self, start: int, stop: int) -> int:
        stop = min(stop, self._num_blocks)
        return next((block for block in range(start, stop) if not self._has(block)), max(start, stop))

    def last_available(self, stop: int) -> int:
        return next((block for block in range(min(stop, self._num_blocks) - 1, -1, -1) if self._has(block)), -1)

    def _has(self, block: int) -> bool:
        begin, end = block * self._block_size, (block + 1) * self._block_size
        for size, media, hashes in self._by_size:
            first, stop = begin // size, -(-end // size)
            if stop <= len(hashes) and all(media.get(hashes[i], 0) & self._bits for i in range(first, stop)):
                return True
        return False
