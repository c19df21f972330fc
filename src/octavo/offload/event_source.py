"""From changes of the tiers to events: what came to a medium and went from it, chunk by chunk.

A chunk is told as a block of its own size, by the hash of its last block: it is there with all its blocks. Tokens and
parents are left out, as the publisher of the device's events has told them. On the wire the media have vLLM's names,
and `ownership` says which tier it is.
"""

from collections.abc import Iterator, Sequence

from octavo.chunks import GroupOffloadConfig, OffloadChanges, OffloadKey, get_offload_block_hash, get_offload_group_idx
from octavo.events import (
    MEDIUM_CPU,
    MEDIUM_STORAGE,
    AllBlocksCleared,
    AnyEvent,
    BlockRemoved,
    BlockStored,
    external_hashes,
)
from octavo.ids import GroupIdx

_WIRE_NAMES = {"memory": MEDIUM_CPU, "disk": MEDIUM_STORAGE}


class OffloadEventSource:
    """Makes messages of what changed below the device."""

    def __init__(
        self, groups: Sequence[GroupOffloadConfig], *, hashes_as_bytes: bool = False, locality: str | None = None
    ) -> None:
        self._groups = groups
        self._hashes_as_bytes = hashes_as_bytes
        self._locality = locality

    def messages(self, changes: OffloadChanges) -> list[AnyEvent]:
        """The events of one step: what was cleared, then for each medium one removal and one store for each group.

        AllBlocksCleared has no medium: whoever publishes other media too has to tell those after it.
        """
        events: list[AnyEvent] = [AllBlocksCleared()] if changes.was_cleared else []
        for medium in changes.media:
            removed = () if changes.was_cleared else medium.removed
            events += [self._removed(medium.medium, group, keys) for group, keys in _by_group(removed)]
        for medium in changes.media:
            events += [self._stored(medium.medium, group, keys) for group, keys in _by_group(medium.stored)]
        return events

    def _removed(self, medium: str, group_idx: GroupIdx, keys: Sequence[OffloadKey]) -> BlockRemoved:
        return BlockRemoved(
            block_hashes=external_hashes(list(map(get_offload_block_hash, keys)), as_bytes=self._hashes_as_bytes),
            medium=_WIRE_NAMES.get(medium, medium),
            group_idx=group_idx,
            locality=self._locality,
            ownership=medium,
        )

    def _stored(self, medium: str, group_idx: GroupIdx, keys: Sequence[OffloadKey]) -> BlockStored:
        group = self._groups[group_idx]
        return BlockStored(
            block_hashes=external_hashes(list(map(get_offload_block_hash, keys)), as_bytes=self._hashes_as_bytes),
            parent_block_hash=None,
            token_ids=[],
            block_size=group.tokens_per_chunk,
            lora_id=None,
            medium=_WIRE_NAMES.get(medium, medium),
            lora_name=None,
            group_idx=group_idx,
            kv_cache_spec_kind=group.spec.kind,
            kv_cache_spec_sliding_window=getattr(group.spec, "sliding_window", None),
            locality=self._locality,
            ownership=medium,
        )


def _by_group(keys: Sequence[OffloadKey]) -> Iterator[tuple[GroupIdx, list[OffloadKey]]]:
    groups: dict[GroupIdx, list[OffloadKey]] = {}
    for key in keys:
        groups.setdefault(get_offload_group_idx(key), []).append(key)
    return iter(sorted(groups.items()))
