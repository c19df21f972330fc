"""Which blocks of one request's group are offloaded, and in which chunks.

A chunk begins at a multiple of `blocks_per_chunk` and is named by its last block. Mostly that is the last that fits; a
chunk at the end of a promised boundary may be shorter, and then has a name of its own. So a block may be in several:

    blocks     | 0  1  2  3 | 4  5  6  7 |        blocks_per_chunk = 4
    chunks     [   key(3)   ][key(5)]             promised at the end of block 5
                             [  key(7)   ]        and later, when the sequence went on, at the end of block 7
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from octavo.chunks import ALL_BLOCKS, LookupResult, OffloadKey
from octavo.ids import Row
from octavo.offload.device import DeviceBlocks
from octavo.offload.manager import OffloadingManager
from octavo.offload.request_state import RequestGroupState
from octavo.specs import ceil_div

_FIRST_PROBE = 16
_UNKNOWN, _MISSING, _THERE = 0, 1, 2
ANYWHERE: Collection[LookupResult] = (LookupResult.HIT, LookupResult.HIT_PENDING, LookupResult.RETRY)
IN_MEMORY: Collection[LookupResult] = (LookupResult.HIT,)


def held_mask(held_blocks: int, num_blocks: int) -> int:
    """The blocks that a chunk of `num_blocks` has, as a mask: 0b111, not ALL_BLOCKS, for a whole chunk of 3 blocks."""
    whole = (1 << num_blocks) - 1
    return whole if held_blocks == ALL_BLOCKS else held_blocks & whole


def blocks_in_mask(first_block: int, held_blocks: int) -> list[int]:
    return [first_block + i for i in range(held_blocks.bit_length()) if held_blocks >> i & 1]


class ChunkOfBlocks(NamedTuple):
    """Blocks of a request that one chunk has."""

    key: OffloadKey
    first_block: int
    num_blocks: int
    """The number of blocks from the first to the one that names the chunk, held or not."""
    held_blocks: int
    """As a mask, bit 0 for the first block."""
    stands: LookupResult


class OffloadedBlocks:
    """`BlockAvailability` over the tiers. It remembers what it found, so it is good for one question only."""

    def __init__(self, state: RequestGroupState, manager: OffloadingManager, accepts: Collection[LookupResult]) -> None:
        self.state = state
        self._accepts = accepts
        self._manager = manager
        self._size = state.blocks_per_chunk
        self._num_known = len(state.hashes)
        self._found = bytearray(self._num_known)
        """Per block: unknown, missing or there."""
        self._stands: list[LookupResult] = [LookupResult.MISS] * self._num_known
        """Per block: where the chunk is that ends with it."""
        self._masks: dict[int, int] = {}
        """Last block of a chunk of several blocks -> the mask of the blocks that it holds."""

    def first_missing(self, start: int, stop: int) -> int:
        known = min(stop, self._num_known)
        at, probe = start, _FIRST_PROBE
        while at < known:
            end = min(at + probe * self._size, known)
            self._look_up(at, end)
            missing = self._found.find(_MISSING, at, end)
            if missing >= 0:
                return missing
            at, probe = end, probe * 8
        return at

    def available_until(self, stop: int) -> int:
        end, probe = min(stop, self._num_known), _FIRST_PROBE
        while end > 0:
            start = max(0, end - probe * self._size)
            self._look_up(start, end)
            last = self._found.rfind(_THERE, start, end)
            if last >= 0:
                return last + 1
            end, probe = start, probe * 8
        return 0

    def missing_in(self, run: range) -> list[int]:
        """The blocks of a run that no chunk has."""
        stop = min(run.stop, self._num_known)
        self._look_up(run.start, stop)
        if self._found.find(_MISSING, run.start, stop) < 0:
            return []
        return [block for block in range(run.start, stop) if self._found[block] == _MISSING]

    def keys_in(self, run: range) -> Sequence[OffloadKey]:
        """The chunks that have blocks of a run, or blocks near it, in the order of the sequence. A chunk is left out if
        longer ones of the same blocks have all that it holds."""
        start, stop = run.start // self._size * self._size, min(run.stop, self._num_known)
        self._look_up(start, stop)
        keys = self.state.keys[start:stop]
        if self._size > 1:
            return [self.state.keys[end] for end in self._ends_of_chunks(start, stop)]
        if self._found.find(_MISSING, start, stop) < 0:
            return keys
        return [key for key, found in zip(keys, self._found[start:stop], strict=True) if found == _THERE]

    def _ends_of_chunks(self, start: int, stop: int) -> list[int]:
        """The last blocks of the chunks that end in `[start, stop)`, but for those that hold nothing of their own."""
        ends, held = list[int](), 0
        for end in range(stop - 1, start - 1, -1):
            if (end + 1) % self._size == 0:
                held = 0
            mask = self._masks.get(end, 0)
            if mask & ~held:
                ends.append(end)
            held |= mask
        return ends[::-1]

    def chunk_with(self, block: int) -> ChunkOfBlocks:
        """A chunk that has this block, which must be there. A chunk that can be loaded now is preferred."""
        self._look_up(block, block + 1)
        if self._size == 1:
            return ChunkOfBlocks(self.state.keys[block], block, 1, 1, self._stands[block])
        first = block // self._size * self._size
        chunks = [
            ChunkOfBlocks(self.state.keys[end], first, end - first + 1, self._masks[end], self._stands[end])
            for end in self.state.ends_of_chunk(first)
            if self._masks.get(end, 0) >> (block - first) & 1
        ]
        return min(chunks, key=lambda chunk: chunk.stands is not LookupResult.HIT)

    def _look_up(self, start: int, stop: int) -> None:
        """Looks up the unknown blocks in `[start, stop)`, in one call."""
        first = self._found.find(_UNKNOWN, start, stop)
        if first < 0:
            return
        first = first // self._size * self._size
        end = min(ceil_div(self._found.rfind(_UNKNOWN, first, stop) + 1, self._size) * self._size, self._num_known)
        keys, accepts = self.state.keys[first:end], self._accepts
        self._stands[first:end] = stands = self._manager.lookup(keys)
        self._found[first:end] = bytes([_THERE if stand in accepts else _MISSING for stand in stands])
        if self._size > 1:
            self._spread(first, end)

    def _spread(self, start: int, stop: int) -> None:
        """Marks the blocks that chunks of several blocks hold."""
        ends = [block for block in range(start, stop) if self._found[block] == _THERE]
        masks = self._manager.held_blocks([self.state.keys[end] for end in ends])
        self._found[start:stop] = bytes([_MISSING]) * (stop - start)
        for end, mask in zip(ends, masks, strict=True):
            first = end // self._size * self._size
            self._masks[end] = held_mask(mask, end - first + 1)
            for block in blocks_in_mask(first, self._masks[end]):
                self._found[block] = _THERE


class TieredBlocks:
    """`BlockAvailability` over the device and the tiers together."""

    def __init__(self, device: DeviceBlocks, offloaded: OffloadedBlocks) -> None:
        self.device = device
        self.offloaded = offloaded

    def first_missing(self, start: int, stop: int) -> int:
        at = start
        while at < stop:
            at = self.device.first_missing(at, stop)
            if at < stop:
                on_tiers_until = self.offloaded.first_missing(at, self._next_on_device(at, stop))
                if on_tiers_until == at:
                    return at
                at = on_tiers_until
        return stop

    def available_until(self, stop: int) -> int:
        return max(self.device.available_until(stop), self.offloaded.available_until(stop))

    def rows_and_missing(self, ranges: Sequence[range]) -> tuple[list[Row], list[int]]:
        """Rows of the blocks that are on the device, and the blocks that are not."""
        rows: list[Row] = []
        missing: list[int] = []
        for run in ranges:
            found = list(map(self.device.index.get, self.device.hashes[run.start : run.stop]))
            rows += [row for row in found if row is not None]
            missing += [block for block, row in zip(run, found, strict=True) if row is None]
        return rows, missing

    def _next_on_device(self, start: int, stop: int) -> int:
        """The end of the stretch for which it is worth asking the tiers: the device's next block."""
        index, hashes = self.device.index, self.device.hashes
        known = min(stop, len(hashes))
        return next((block for block in range(start + 1, known) if hashes[block] in index), stop)
