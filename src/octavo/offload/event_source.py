"""From changes of the tiers to events: which blocks came to a medium and went from it.

A chunk is told as the blocks that it holds, each by its own hash and with the group's block size: what the device's
events call a block is the same block here. A block may lie in several chunks of a medium; it is there while any of them
has it. So it is told when the first one comes and the last one goes, and a subscriber need not count. Tokens and
parents are left out, as the publisher of the device's events has told them. On the wire the media have vLLM's names,
and `ownership` says which tier it is.

Of a chunk that a former process has written only the last block's hash is known. A whole one is told by it, with the
chunk's size as block size. Of another one its last block is told, with block size 0: its other blocks are unknown, and
a subscriber's view knows that it is not complete.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from octavo.chunks import (
    ALL_BLOCKS,
    GroupOffloadConfig,
    MediumChanges,
    OffloadChanges,
    OffloadKey,
    get_offload_block_hash,
    get_offload_group_idx,
    make_offload_key,
)
from octavo.events import (
    MEDIUM_CPU,
    MEDIUM_STORAGE,
    AllBlocksCleared,
    AnyEvent,
    BlockRemoved,
    BlockStored,
    external_hashes,
)
from octavo.ids import BlockHash, GroupIdx

_WIRE_NAMES = {"memory": MEDIUM_CPU, "disk": MEDIUM_STORAGE}
_MOST_NAMED = 1 << 16
"""The most chunks that are remembered with their blocks while no medium has them. Beyond that the oldest is forgotten,
and later told by its last block alone."""
_BySize = dict[int, list[OffloadKey]]
"""By `_Block.num_blocks`."""


class _Block(NamedTuple):
    """The unit of an event: a block, or a chunk that is told by its last block."""

    key: OffloadKey
    num_blocks: int = 1
    """The number of blocks that come with it; 0: this block, and others that cannot be named."""


class OffloadEventSource:
    """Makes messages of what changed below the device."""

    def __init__(
        self, groups: Sequence[GroupOffloadConfig], *, hashes_as_bytes: bool = False, locality: str | None = None
    ) -> None:
        self._groups = groups
        self._hashes_as_bytes = hashes_as_bytes
        self._locality = locality
        self._named: OrderedDict[OffloadKey, Sequence[BlockHash]] = OrderedDict()
        self._blocks: dict[str, _BlocksOfMedium] = {}
        """By medium, for chunks of several blocks."""

    def name(self, key: OffloadKey, block_hashes: Sequence[BlockHash]) -> None:
        """Learns the blocks of a chunk, from its first to the one that names it. A key alone tells only the last."""
        self._named.pop(key, None)
        if len(self._named) == _MOST_NAMED:
            self._named.popitem(last=False)
        self._named[key] = block_hashes

    def messages(self, changes: OffloadChanges) -> list[AnyEvent]:
        """The events of one step: first what was cleared, then for each medium one removal and one store per group.
        AllBlocksCleared names no medium, so a publisher that also tells of other media must tell their blocks again
        after it."""
        events: list[AnyEvent] = [AllBlocksCleared()] if changes.was_cleared else []
        if changes.was_cleared:
            self._blocks.clear()
        told = [(medium.medium, *self._changed_blocks(medium)) for medium in changes.media]
        for medium, removed, _ in told:
            if not changes.was_cleared:
                events += [
                    self._removed(medium, group, keys)
                    for group, keys in _by_group(key for keys in removed.values() for key in keys)
                ]
        for medium, _, stored in told:
            events += [
                self._stored(medium, group, keys, num_blocks)
                for num_blocks, of_size in sorted(stored.items())
                for group, keys in _by_group(of_size)
            ]
        return events

    def _changed_blocks(self, medium: MediumChanges) -> tuple[_BySize, _BySize]:
        """The blocks that went, and those that came."""
        removed = {1: [key for key in medium.removed if self._size(key) == 1]}
        stored = {1: [key for key in medium.stored if self._size(key) == 1]}
        chunks = {key: mask for key, mask in medium.held.items() if self._size(key) > 1}
        if chunks:
            blocks = self._blocks.setdefault(medium.medium, _BlocksOfMedium())
            gone, come = blocks.change(chunks, self._content)
            for blocks_told, by_size in ((gone, removed), (come, stored)):
                for block in blocks_told:
                    by_size.setdefault(block.num_blocks, []).append(block.key)
        return removed, stored

    def _size(self, key: OffloadKey) -> int:
        return self._groups[get_offload_group_idx(key)].blocks_per_chunk

    def _content(self, key: OffloadKey, mask: int) -> "_Content":
        """The blocks of a chunk, as far as they are known."""
        if not mask:
            return _NOTHING
        hashes = self._named.get(key)
        if hashes is None:
            return _Content(mask, [_Block(key, self._size(key) if mask == ALL_BLOCKS else 0)], is_named=False)
        group_idx = get_offload_group_idx(key)
        there = [block_hash for i, block_hash in enumerate(hashes) if mask >> i & 1]
        return _Content(mask, [_Block(make_offload_key(block_hash, group_idx)) for block_hash in there], is_named=True)

    def _removed(self, medium: str, group_idx: GroupIdx, keys: Sequence[OffloadKey]) -> BlockRemoved:
        return BlockRemoved(
            block_hashes=external_hashes(list(map(get_offload_block_hash, keys)), as_bytes=self._hashes_as_bytes),
            medium=_WIRE_NAMES.get(medium, medium),
            group_idx=group_idx,
            locality=self._locality,
            ownership=medium,
        )

    def _stored(self, medium: str, group_idx: GroupIdx, keys: Sequence[OffloadKey], num_blocks: int) -> BlockStored:
        group = self._groups[group_idx]
        return BlockStored(
            block_hashes=external_hashes(list(map(get_offload_block_hash, keys)), as_bytes=self._hashes_as_bytes),
            parent_block_hash=None,
            token_ids=[],
            block_size=num_blocks * group.spec.block_size,
            lora_id=None,
            medium=_WIRE_NAMES.get(medium, medium),
            lora_name=None,
            group_idx=group_idx,
            kv_cache_spec_kind=group.spec.kind,
            kv_cache_spec_sliding_window=getattr(group.spec, "sliding_window", None),
            locality=self._locality,
            ownership=medium,
        )


class _Content(NamedTuple):
    """What a chunk holds."""

    mask: int
    blocks: Sequence[_Block]
    is_named: bool


_NOTHING = _Content(0, (), is_named=True)


class _BlocksOfMedium:
    """Which blocks a medium has, and in how many chunks each."""

    def __init__(self) -> None:
        self._of_chunk: dict[OffloadKey, _Content] = {}
        self._num_chunks: Counter[_Block] = Counter()
        """Block -> the number of chunks that hold it."""

    def change(
        self, chunks: Mapping[OffloadKey, int], content_of: Callable[[OffloadKey, int], _Content]
    ) -> tuple[list[_Block], list[_Block]]:
        """Notes that these chunks now hold the blocks of these masks. Returns the blocks whose last chunk went, and
        those that these chunks hold: all of them, as who is told anew may know none yet."""
        before: dict[_Block, bool] = {}
        stored: dict[_Block, None] = {}
        for key, mask in chunks.items():
            former = self._of_chunk.get(key, _NOTHING)
            if former.mask == mask and former.is_named:
                stored.update(dict.fromkeys(former.blocks))
                continue
            content = content_of(key, mask)
            now = former if former.mask == mask and not content.is_named else content
            self._of_chunk.pop(key, None)
            stored.update(dict.fromkeys(now.blocks))
            for block in (*former.blocks, *now.blocks):
                before.setdefault(block, block in self._num_chunks)
            self._count(former.blocks, -1)
            self._count(now.blocks, 1)
            if now.mask:
                self._of_chunk[key] = now
        removed = [block for block, was_there in before.items() if was_there and not self._is_there(block)]
        return removed, list(stored)

    def _is_there(self, block: _Block) -> bool:
        """Whether some chunk holds it. A removal does not say whether the block was told with others that cannot be
        named."""
        return block in self._num_chunks or (
            block.num_blocks < 2 and block._replace(num_blocks=1 - block.num_blocks) in self._num_chunks
        )

    def _count(self, blocks: Iterable[_Block], by: int) -> None:
        for block in blocks:
            self._num_chunks[block] += by
            if not self._num_chunks[block]:
                del self._num_chunks[block]


def _by_group(keys: Iterable[OffloadKey]) -> Iterator[tuple[GroupIdx, list[OffloadKey]]]:
    groups: dict[GroupIdx, list[OffloadKey]] = {}
    for key in keys:
        groups.setdefault(get_offload_group_idx(key), []).append(key)
    return iter(sorted(groups.items()))
