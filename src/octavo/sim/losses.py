"""Why a request could not resume all that had been computed before it.

`octavo.why` has the rule. The simulator knows whether each block was ever kept, and where it is.
"""

from collections.abc import Sequence

from octavo.blocks import RequestBlocks
from octavo.chunks import OffloadChanges, get_offload_block_hash, get_offload_group_idx
from octavo.events import CacheChanges
from octavo.ids import BlockHash, GroupIdx
from octavo.planning import KVCacheConfig
from octavo.sim.outcomes import Outcome
from octavo.why import Cause, find_loss


class LossJudge:
    """Remembers which blocks were ever computed and kept, and finds what a request lost."""

    def __init__(self, plan: KVCacheConfig) -> None:
        self._plan = plan
        self._seen: set[BlockHash] = set()
        """Hash blocks whose tokens a request has computed, or is computing."""
        self._ever_kept: list[set[BlockHash]] = [set() for _ in plan.groups]
        self._kept: list[dict[BlockHash, int]] = [{} for _ in plan.groups]
        """Per group: the number of media that have each block."""

    def note_device(self, changes: CacheChanges) -> None:
        for group_idx, hashes in changes.removed.items():
            self._removed(group_idx, hashes)
        for run in changes.stored:
            self._stored(run.group_idx, run.hashes)

    def note_media(self, changes: OffloadChanges) -> None:
        for medium in changes.media:
            for key in medium.removed:
                self._removed(get_offload_group_idx(key), (get_offload_block_hash(key),))
            for key in medium.stored:
                self._stored(get_offload_group_idx(key), (get_offload_block_hash(key),))

    def judge(self, outcome: Outcome, blocks: RequestBlocks, num_resumed: int) -> None:
        """Judges a request that starts, with this many tokens resumed. From now on its prompt counts as seen."""
        granule = self._plan.resume_granularity
        most = self._plan.last_boundary(blocks.num_prompt_tokens)
        num_seen = self._num_seen_tokens(blocks) // granule * granule
        # What a request resumes was computed before, also where the one that computed it still writes its answer.
        outcome.num_seen_tokens = max(min(most, num_seen), num_resumed)
        outcome.num_lost_tokens = outcome.num_seen_tokens - num_resumed
        if outcome.num_lost_tokens:
            self._find_cause(outcome, blocks)
        self._seen.update(blocks.hashed)

    def note_end(self, blocks: RequestBlocks) -> None:
        """Notes that a request has ended: its output was computed too."""
        self._seen.update(blocks.hashed)

    def _num_seen_tokens(self, blocks: RequestBlocks) -> int:
        """The tokens up to the first hash that was never seen. As hashes are chained, none after it was seen."""
        seen = self._seen
        count = next((index for index, name in enumerate(blocks.hashed) if name not in seen), len(blocks.hashed))
        return count * self._plan.hash_block_size

    def _find_cause(self, outcome: Outcome, blocks: RequestBlocks) -> None:
        def became_of(group_idx: GroupIdx, needed: Sequence[int]) -> list[Cause | None]:
            hashes, kept, ever = blocks.hashes(group_idx), self._kept[group_idx], self._ever_kept[group_idx]
            names = [hashes[index] for index in needed]
            return [None if kept.get(n) else Cause.EVICTED if n in ever else Cause.NEVER_KEPT for n in names]

        loss = find_loss(self._plan, blocks, outcome.num_seen_tokens, became_of)
        outcome.cause, outcome.lost_group = loss.cause, loss.group_idx

    def _stored(self, group_idx: GroupIdx, hashes: Sequence[BlockHash]) -> None:
        kept, ever = self._kept[group_idx], self._ever_kept[group_idx]
        for name in hashes:
            kept[name] = kept.get(name, 0) + 1
        ever.update(hashes)

    def _removed(self, group_idx: GroupIdx, hashes: Sequence[BlockHash]) -> None:
        kept = self._kept[group_idx]
        for name in hashes:
            left = kept.get(name, 0) - 1
            if left > 0:
                kept[name] = left
            else:
                kept.pop(name, None)
