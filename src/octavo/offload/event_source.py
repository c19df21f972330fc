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

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from octavo.chunks import (
    ALL_BLOCKS,
    GroupOffloadConfig,
    MediumChanges,
    OffloadChanges,
    OffloadKey,
    get_offload_block_hash,
    get_offload_group_idx,
    group_keys,
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
_ByGroup = dict[GroupIdx, list[OffloadKey]]


class OffloadEventSource:
    """Makes messages of what changed below the device."""

    def __init__(self, groups: Sequence[GroupOffloadConfig]) -> None:
        self._groups = groups
        self._has_long_chunks = any(group.blocks_per_chunk > 1 for group in groups)
        self._named: OrderedDict[OffloadKey, Sequence[BlockHash]] = OrderedDict()
        self._blocks: dict[tuple[str, GroupIdx], _BlocksOfMedium] = {}
        """By medium and group, for chunks of several blocks."""

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
                events += [self._removed(medium, group, keys) for group, keys in sorted(removed.items())]
        for medium, _, stored in told:
            events += [
                self._stored(medium, group, keys, num_blocks) for (num_blocks, group), keys in sorted(stored.items())
            ]
        return events

    def _changed_blocks(self, medium: MediumChanges) -> tuple[_ByGroup, dict[tuple[int, GroupIdx], list[OffloadKey]]]:
        """The blocks that went, and those that came, by `_Content.num_blocks` and group."""
        removed = {group: keys for group, keys in group_keys(medium.removed).items() if self._size(group) == 1}
        stored = {(1, group): keys for group, keys in group_keys(medium.stored).items() if self._size(group) == 1}
        if self._has_long_chunks:
            for group, keys in group_keys(medium.held).items():
                if self._size(group) > 1:
                    blocks = self._blocks.setdefault((medium.medium, group), _BlocksOfMedium())
                    gone, come = blocks.change({key: medium.held[key] for key in keys}, self._named, self._size(group))
                    if gone:
                        removed[group] = gone
                    stored.update(((num_blocks, group), blocks) for num_blocks, blocks in come.items())
        return removed, stored

    def _size(self, group: GroupIdx) -> int:
        return self._groups[group].blocks_per_chunk

    def _removed(self, medium: str, group_idx: GroupIdx, keys: Sequence[OffloadKey]) -> BlockRemoved:
        return BlockRemoved(
            block_hashes=external_hashes(list(map(get_offload_block_hash, keys))),
            medium=_WIRE_NAMES.get(medium, medium),
            group_idx=group_idx,
            ownership=medium,
        )

    def _stored(self, medium: str, group_idx: GroupIdx, keys: Sequence[OffloadKey], num_blocks: int) -> BlockStored:
        group = self._groups[group_idx]
        return BlockStored(
            block_hashes=external_hashes(list(map(get_offload_block_hash, keys))),
            parent_block_hash=None,
            token_ids=[],
            block_size=num_blocks * group.spec.block_size,
            lora_id=None,
            medium=_WIRE_NAMES.get(medium, medium),
            lora_name=None,
            group_idx=group_idx,
            kv_cache_spec_kind=group.spec.kind,
            kv_cache_spec_sliding_window=getattr(group.spec, "sliding_window", None),
            ownership=medium,
        )


class _Content(NamedTuple):
    """What a chunk holds."""

    mask: int
    blocks: Sequence[OffloadKey]
    """Each block by the key that a chunk ending with it would have."""
    num_blocks: int
    """The number of blocks that come with each: 1, or those of a whole chunk of which only the last is known. 0: others
    come with it that cannot be named."""


_NOTHING = _Content(0, (), 1)


def _content(key: OffloadKey, mask: int, hashes: Sequence[BlockHash] | None, num_blocks: int) -> _Content:
    """The blocks of a chunk, as far as they are known."""
    if not mask:
        return _NOTHING
    if hashes is None:
        return _Content(mask, (key,), num_blocks if mask == ALL_BLOCKS else 0)
    group = get_offload_group_idx(key)
    return _Content(mask, [make_offload_key(name, group) for i, name in enumerate(hashes) if mask >> i & 1], 1)


class _BlocksOfMedium:
    """Which blocks of a group a medium has, and in how many chunks each."""

    def __init__(self) -> None:
        self._of_chunk: dict[OffloadKey, _Content] = {}
        self._num_chunks: defaultdict[int, Counter[OffloadKey]] = defaultdict(Counter)
        """By `_Content.num_blocks`: block -> the number of chunks that hold it."""

    def change(
        self, chunks: Mapping[OffloadKey, int], named: Mapping[OffloadKey, Sequence[BlockHash]], chunk_size: int
    ) -> tuple[list[OffloadKey], dict[int, list[OffloadKey]]]:
        """Notes that these chunks now hold the blocks of these masks. Returns the blocks whose last chunk went, and by
        `_Content.num_blocks` those that these chunks hold: all of them, as who is told anew may know none yet."""
        before: dict[tuple[int, OffloadKey], bool] = {}
        held: defaultdict[int, dict[OffloadKey, None]] = defaultdict(dict)
        for key, mask in chunks.items():
            content = former = self._of_chunk.get(key, _NOTHING)
            if mask != former.mask or (former.num_blocks != 1 and key in named):
                content = _content(key, mask, named.get(key), chunk_size)
                self._replace(key, former, content, before)
            held[content.num_blocks].update(dict.fromkeys(content.blocks))
        removed = [
            key for (num_blocks, key), was_there in before.items() if was_there and not self._is_there(num_blocks, key)
        ]
        return removed, {num_blocks: list(keys) for num_blocks, keys in held.items() if keys}

    def _replace(
        self, key: OffloadKey, former: _Content, content: _Content, before: dict[tuple[int, OffloadKey], bool]
    ) -> None:
        """Notes in `before`, of each block that this changes, whether it was there."""
        for num_blocks, blocks, by in ((former.num_blocks, former.blocks, -1), (content.num_blocks, content.blocks, 1)):
            counts = self._num_chunks[num_blocks]
            for block in blocks:
                before.setdefault((num_blocks, block), block in counts)
                counts[block] += by
                if not counts[block]:
                    del counts[block]
        if content.mask:
            self._of_chunk[key] = content
        else:
            self._of_chunk.pop(key, None)

    def _is_there(self, num_blocks: int, block: OffloadKey) -> bool:
        """Whether some chunk holds it. A removal does not say whether the block was told with others that cannot be
        named."""
        return block in self._num_chunks[num_blocks] or (num_blocks < 2 and block in self._num_chunks[1 - num_blocks])
