"""What one step changed in the prefix cache, as data: the net effect, removals before stores.

A block that was stored and removed within the step is not mentioned, nor is one that was removed and stored again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from octavo.ids import BlockHash, GroupIdx, Row, enumerate_groups
from octavo.specs import CachedSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """Blocks of one group and one request that entered the index, in the order of the sequence."""

    group_idx: GroupIdx
    sequence: CachedSequence
    blocks: Sequence[int]
    """Indexes of the blocks in the sequence: all of a span, or some of them, e.g. [4, 5, 7]."""
    hashes: Sequence[BlockHash]
    rows: Sequence[Row]
    parent_hash: BlockHash | None
    """The hash of the block before the first one; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheChanges:
    """The net effect of one step on the prefix cache."""

    was_cleared: bool
    """The whole cache was cleared first; `removed` and `stored` happened after that."""
    removed: dict[GroupIdx, list[BlockHash]]
    """By group."""
    stored: tuple[StoredRun, ...]


class StepEvents:
    """Collects the changes of one step in their order. `take` computes their net effect. In most steps no block was
    both stored and removed, and `take` finds that with set operations, without looking at single blocks."""

    def __init__(self, num_groups: int) -> None:
        self._num_groups = num_groups
        self._start_anew(was_cleared=False)

    def removed(self, group: GroupIdx, hashes: Sequence[BlockHash]) -> None:
        self._log[group].append(hashes)

    def stored(self, run: StoredRun) -> None:
        self._log[run.group_idx].append(run)

    def cleared(self) -> None:
        self._start_anew(was_cleared=True)

    def take(self) -> CacheChanges:
        """The changes since the last call."""
        removed: dict[GroupIdx, list[BlockHash]] = {}
        stored: list[StoredRun] = []
        for group, log in enumerate_groups(self._log):
            gone, runs = _net_effect(log)
            if gone:
                removed[group] = gone
            stored += runs
        changes = CacheChanges(was_cleared=self._was_cleared, removed=removed, stored=tuple(stored))
        self._start_anew(was_cleared=False)
        return changes

    def _start_anew(self, *, was_cleared: bool) -> None:
        self._was_cleared = was_cleared
        self._log: list[list[Sequence[BlockHash] | StoredRun]] = [[] for _ in range(self._num_groups)]


def _net_effect(log: Sequence[Sequence[BlockHash] | StoredRun]) -> tuple[list[BlockHash], list[StoredRun]]:
    runs = [change for change in log if isinstance(change, StoredRun)]
    gone = [block_hash for change in log if not isinstance(change, StoredRun) for block_hash in change]
    if not runs or not gone:
        return gone, runs
    all_gone = set(gone)
    if all(all_gone.isdisjoint(run.hashes) for run in runs):
        return gone, runs
    removed: dict[BlockHash, None] = {}
    fresh: set[BlockHash] = set()
    for change in log:
        for block_hash in change.hashes if isinstance(change, StoredRun) else change:
            if isinstance(change, StoredRun):
                if block_hash in removed:
                    del removed[block_hash]
                else:
                    fresh.add(block_hash)
            elif block_hash in fresh:
                fresh.discard(block_hash)
            else:
                removed[block_hash] = None
    kept = [_only(run, fresh) for run in reversed(runs)]  # where a block was stored twice, the last row is right
    return list(removed), [run for run in reversed(kept) if run.hashes]


def _only(run: StoredRun, fresh: set[BlockHash]) -> StoredRun:
    """The blocks of a run that were not there before the step. A block that was stored twice is mentioned once."""
    kept = [i for i, block_hash in enumerate(run.hashes) if block_hash in fresh]
    fresh.difference_update([run.hashes[i] for i in kept])
    blocks = [run.blocks[i] for i in kept]
    has_parent = bool(blocks) and blocks[0] > 0
    return replace(
        run,
        blocks=blocks,
        parent_hash=run.sequence.hashes(run.group_idx)[blocks[0] - 1] if has_parent else None,
        hashes=[run.hashes[i] for i in kept],
        rows=[run.rows[i] for i in kept],
    )
