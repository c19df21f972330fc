"""What one step changed in the prefix cache, as data: the net effect, removals before stores.

A block that was stored and removed within the step is not mentioned, nor is one that was removed and stored again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from octavo.ids import BlockHash
from octavo.specs.manager import CachedSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """Blocks of one group and one request that entered the index, in the order of the sequence."""

    group_idx: int
    sequence: CachedSequence
    blocks: Sequence[int]
    """Their places in the sequence: all of a span, or a subset of it."""
    hashes: Sequence[BlockHash]
    rows: Sequence[int]
    parent_hash: BlockHash | None
    """The hash of the block before the first one; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheChanges:
    """The net effect of one step on the prefix cache."""

    was_cleared: bool
    """Everything went before the rest happened."""
    removed: dict[int, tuple[BlockHash, ...]]
    """By group."""
    stored: tuple[StoredRun, ...]


class StepEvents:
    """Collects the changes of one step. Bulk operations only: it is called once per batch of blocks."""

    def __init__(self, num_groups: int) -> None:
        self._num_groups = num_groups
        self._start_anew(was_cleared=False)

    def removed(self, group: int, hashes: Sequence[BlockHash]) -> None:
        fresh = self._fresh[group]
        if fresh and not fresh.isdisjoint(hashes):
            stored_now = fresh.intersection(hashes)
            fresh -= stored_now
            hashes = [h for h in hashes if h not in stored_now]
        self._removed[group].update(dict.fromkeys(hashes))

    def stored(self, run: StoredRun) -> None:
        hashes: set[BlockHash] = set(run.hashes)
        removed = self._removed[run.group_idx]
        if removed and not removed.keys().isdisjoint(hashes):
            for known in hashes & removed.keys():
                del removed[known]
                hashes.discard(known)
        self._fresh[run.group_idx] |= hashes
        self._runs.append(run)

    def cleared(self) -> None:
        self._start_anew(was_cleared=True)

    def take(self) -> CacheChanges:
        """The changes since the last call."""
        changes = CacheChanges(
            was_cleared=self._was_cleared,
            removed={group: tuple(hashes) for group, hashes in enumerate(self._removed) if hashes},
            stored=tuple(run for run in map(self._without_what_went_again, self._runs) if run.hashes),
        )
        self._start_anew(was_cleared=False)
        return changes

    def _without_what_went_again(self, run: StoredRun) -> StoredRun:
        fresh = self._fresh[run.group_idx]
        if fresh.issuperset(run.hashes):
            return run
        kept = [i for i, h in enumerate(run.hashes) if h in fresh]
        return replace(
            run,
            blocks=[run.blocks[i] for i in kept],
            hashes=[run.hashes[i] for i in kept],
            rows=[run.rows[i] for i in kept],
        )

    def _start_anew(self, *, was_cleared: bool) -> None:
        self._was_cleared = was_cleared
        self._removed: list[dict[BlockHash, None]] = [{} for _ in range(self._num_groups)]
        self._fresh: list[set[BlockHash]] = [set() for _ in range(self._num_groups)]
        self._runs: list[StoredRun] = []
