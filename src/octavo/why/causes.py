"""The causes for which a request could not resume all that had been computed before it, and the rule that finds them.

At the last boundary that earlier requests had computed, the resume rule names the blocks that are needed. The first
group that lacks one gives the cause. Engine and simulator use the same rule, each with its own knowledge of blocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from octavo.blocks import RequestBlocks
from octavo.ids import GroupIdx, enumerate_groups
from octavo.planning import KVCacheConfig


class Cause(StrEnum):
    """Why tokens that had been computed before were computed again."""

    NEVER_KEPT = "never kept"
    """A block that the resume needs was never kept on any medium: no writer promised it."""
    DAMAGED = "damaged"
    """It was kept, and could not be read back: its checksum did not match, or the medium failed."""
    EVICTED = "evicted"
    """It was kept, and every copy has gone."""
    TOO_LATE = "too late"
    """It is there, but loading it was not worth the time, or did not end in time."""


_WORST_FIRST = (Cause.NEVER_KEPT, Cause.DAMAGED, Cause.EVICTED)
"""If a group lacks several blocks for several reasons, the first of these is the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a resume lacked."""

    cause: Cause
    group_idx: GroupIdx | None = None
    """The first group that lacked a block; None if no block was missing."""
    block: int | None = None
    """The first block with this cause."""
    num_missing: int = 0


BecameOf = Callable[[GroupIdx, Sequence[int]], Sequence[Cause | None]]
"""For blocks of one group, given by index in the sequence: why each is missing; None if it is there."""


def find_loss(plan: KVCacheConfig, blocks: RequestBlocks, num_tokens: int, became_of: BecameOf) -> Loss:
    """Why this request could not resume at `num_tokens`, all of which had been computed before."""
    for group_idx, runs in enumerate_groups(plan.blocks_to_resume(blocks.resume_point(num_tokens))):
        known = len(blocks.hashes(group_idx))
        needed = [index for run in runs for index in run if index < known]
        causes = became_of(group_idx, needed)
        for cause in _WORST_FIRST:
            if cause in causes:
                num_missing = len(causes) - causes.count(None)
                return Loss(
                    cause=cause, group_idx=group_idx, block=needed[causes.index(cause)], num_missing=num_missing
                )
    return Loss(cause=Cause.TOO_LATE)
