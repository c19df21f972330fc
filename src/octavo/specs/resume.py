"""The resume rule over all groups: the largest boundary at which every group has all that it needs.

This is the only implementation of the rule. Device cache, offload scheduler, router and simulator differ in what
they pass as `BlockAvailability`.

The search goes down from the end of the request. A group that lacks block k at a boundary moves the search to the
start of k (the law of resumption in `octavo.specs.base`). So a missing stretch costs a window one probe per length of
the window, and a block that was found once is not asked for again:

    blocks      0 ........................................ n/b
    window                       [probed first → ... ]          first missing k: next boundary is k * b
                        [ new part ][ known to be there ]
"""

from collections.abc import Sequence
from math import lcm
from typing import NamedTuple, Protocol

from octavo.errors import BlockSizeError
from octavo.ids import GroupIdx
from octavo.specs.base import KVCacheSpec, ResumePoint, blocks_holding, union_of_ranges


class BlockAvailability(Protocol):
    """The blocks of one request's sequence that one group has, on the media that the caller counts."""

    def first_missing(self, start: int, stop: int) -> int:
        """The smallest block in `[start, stop)` that is not there; `stop` when all are."""

    def available_until(self, stop: int) -> int:
        """The end of the last block before `stop` that is there: 4 where that is block 3, and 0 where there is none.
        Asked only where the spec always needs its last block."""


class GroupAvailability(NamedTuple):
    """One group's part in the question: its spec and what it has."""

    spec: KVCacheSpec
    blocks: BlockAvailability
    is_draft: bool = False
    """The layers of a draft model (EAGLE, MTP). Their entry for token p depends on token p + 1, so they can vouch
    for a boundary only with the granule after it."""


class Resume(NamedTuple):
    """Where a request can go on, and why not later."""

    num_tokens: int
    limited_by: GroupIdx | None
    """The group that ruled out the next larger boundary; None where only the request's length did."""


def resume_granularity(specs: Sequence[KVCacheSpec]) -> int:
    """The distance of the boundaries at which a request with these groups can resume."""
    return lcm(*(spec.block_size for spec in specs if spec.indexes_decoder_tokens))


def last_boundary(num_tokens: int, granularity: int, *, has_draft: bool) -> int:
    """The last boundary at which a request with these tokens could resume: at least one is left to compute, and with
    a draft group the whole granule that must vouch for the boundary."""
    if has_draft:
        return max(0, (num_tokens // granularity - 1) * granularity)
    return max(0, (num_tokens - 1) // granularity * granularity)


def blocks_to_resume(spec: KVCacheSpec, point: ResumePoint, *, is_draft: bool, granularity: int) -> tuple[range, ...]:
    """The blocks that a group must have for a request to resume at `point`. A draft group's witness is among them."""
    ranges = spec.needed_blocks(point)
    if is_draft and _has_block_for_every_token(spec):
        witness = blocks_holding(point.num_tokens, point.num_tokens + granularity, spec.block_size)
        return union_of_ranges((*ranges, *witness))
    return ranges


def longest_resume(
    groups: Sequence[GroupAvailability], request: ResumePoint, *, granularity: int | None = None
) -> Resume:
    """The largest boundary at which every group has what its spec needs.

    `request` carries the tokens that are known; at least one of them is left to compute. `granularity` is the
    distance of the boundaries, by default the least common multiple of the groups' block sizes. Zero means to begin
    at the beginning, encoder included; nothing need be there for that.
    """
    resume, _ = resume_and_known(groups, request, granularity=granularity)
    return resume


def resume_and_known(
    groups: Sequence[GroupAvailability], request: ResumePoint, *, granularity: int | None
) -> tuple[Resume, int]:
    """`longest_resume`, and how much of the request others have computed: the largest boundary at which the groups that
    need their whole prefix have it. 0 where there is no such group, since windows and states tell nothing of what was
    before."""
    step = resume_granularity([group.spec for group in groups]) if granularity is None else granularity
    prefixes: list[_GroupSearch] = []
    others: list[_GroupSearch] = []
    has_draft = knows_prefix = False
    for index, group in enumerate(groups):
        search = _GroupSearch(GroupIdx(index), group, request, step)
        has_draft |= group.is_draft
        if search.spec.needs_whole_prefix:
            prefixes.append(search)
            knows_prefix |= search.spec.indexes_decoder_tokens
        else:
            others.append(search)
    n, limited_by = _lowered(prefixes, last_boundary(request.num_tokens, step, has_draft=has_draft))
    known = n if knows_prefix else 0
    if others:
        n, limited = _lowered([*others, *prefixes], n, num_agreed=len(prefixes))
        limited_by = limited_by if limited is None else limited
    return Resume(n, limited_by), known


def _lowered(searches: "Sequence[_GroupSearch]", n: int, num_agreed: int = 0) -> tuple[int, GroupIdx | None]:
    """The largest boundary up to n at which all of them can resume, and who lowered it last. The last `num_agreed` can
    resume at n."""
    limited_by: GroupIdx | None = None
    while n > 0 and num_agreed < len(searches):
        for search in searches:
            boundary = search.largest_boundary(n)
            num_agreed += 1
            if boundary < n:
                n, limited_by, num_agreed = boundary, search.group_idx, 1
            if num_agreed == len(searches):
                break
    return max(n, 0), limited_by


class _GroupSearch:
    """One group's answers to falling boundaries, with a memory of the blocks that it has found."""

    __slots__ = ("blocks", "found_from", "group_idx", "is_draft", "lookahead", "request", "spec", "step")

    def __init__(self, group_idx: GroupIdx, group: GroupAvailability, request: ResumePoint, step: int) -> None:
        self.spec, self.blocks, self.is_draft = group
        if step < 1 or (step % self.spec.block_size and self.spec.indexes_decoder_tokens):
            raise BlockSizeError(
                f"granularity {step} is not a positive multiple of {self.spec.block_size}, the size of a group's block"
            )
        self.group_idx = group_idx
        self.request = request
        self.step = step
        self.lookahead = draft_lookahead(self.spec, is_draft=self.is_draft, granularity=step)
        self.found_from: int | None = None
        """Every block from here to the boundary last asked for is there."""

    def largest_boundary(self, n: int) -> int:
        """The largest boundary up to n at which the group can resume; 0 at the least."""
        while n > 0:
            missing = self._first_missing(n)
            if missing is None:
                return n
            n = min(self._without(missing) // self.step * self.step, n - self.step)
        return 0

    def _first_missing(self, n: int) -> int | None:
        """A block that is needed at n and not there."""
        _, num_prompt_tokens, num_encoder_tokens = self.request
        point = ResumePoint(n, num_prompt_tokens, num_encoder_tokens)
        ranges = blocks_to_resume(self.spec, point, is_draft=self.is_draft, granularity=self.step)
        if len(ranges) == 1:
            return self._first_missing_of_run(ranges[0])
        for needed in ranges:
            missing = self.blocks.first_missing(needed.start, needed.stop)
            if missing < needed.stop:
                return missing
        return None

    def _first_missing_of_run(self, needed: range) -> int | None:
        """The same for the usual single range, without asking for what was found before."""
        unknown_until = needed.stop if self.found_from is None else min(needed.stop, self.found_from)
        if unknown_until <= needed.start:
            return None
        missing = self.blocks.first_missing(needed.start, unknown_until)
        self.found_from = needed.start
        return None if missing == unknown_until else missing

    def _without(self, missing: int) -> int:
        """Where the sequence may end if it is to do without a block that is needed."""
        if not self.spec.indexes_decoder_tokens:
            return 0  # it is needed wherever the decoder stands
        blocks = missing
        if self.spec.always_needs_last_block:
            blocks = self.blocks.available_until(missing)
        return blocks * self.spec.block_size - self.lookahead


def draft_lookahead(spec: KVCacheSpec, *, is_draft: bool, granularity: int) -> int:
    """How far past a boundary a group must have blocks, in tokens."""
    return granularity if is_draft and _has_block_for_every_token(spec) else 0


def _has_block_for_every_token(spec: KVCacheSpec) -> bool:
    return spec.indexes_decoder_tokens and not spec.holds_checkpoints
