"""The resume rule for many holders at once: an engine of a fleet each, as one bit of an integer.

The search goes down the boundaries, as `longest_resume` does, and asks the same `needed_blocks`. At each boundary it
looks at the set of holders that may resume there. A group parts the set: holders that lack a block wait further down,
at the boundary that the law of resumption allows them, and who is left after all groups resumes here:

    boundary        n3              n2              n1
    may resume      {a, b, c}  ->   {b, c}      ->  {c}
    all groups      {a}             {b}             {c}
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import and_

from octavo.specs.base import KVCacheSpec, ResumePoint
from octavo.specs.resume import blocks_to_resume, draft_lookahead, last_boundary, resume_granularity


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHolders:
    """One group's part in the question: its spec, and who holds each of the prompt's blocks."""

    spec: KVCacheSpec
    holders: Sequence[int]
    """By block: the holders as bits, e.g. 0b101 where the first and the third holder have the block."""
    is_draft: bool = False


def longest_resumes(groups: Sequence[GroupHolders], request: ResumePoint, holders: int) -> Iterator[tuple[int, int]]:
    """The resume points of these holders: (tokens, holders), the longest first. Holders that can resume nothing come
    last, with 0 tokens. Each holder is told once, at the boundary that `longest_resume` would find for it."""
    step = resume_granularity([group.spec for group in groups])
    top = last_boundary(request.num_tokens, step, has_draft=any(group.is_draft for group in groups)) // step
    waiting = [0] * (top + 1)
    waiting[top] = holders
    searches = [_GroupSearch(group, request, step) for group in groups]
    sparse = [search for search in searches if search.group.spec.always_needs_last_block]
    dense = [search for search in searches if not search.group.spec.always_needs_last_block]
    for place in range(top, 0, -1):
        here = waiting[place]
        if place == top:  # most holders lack most of a prompt, and go far down at once
            for search in dense:
                here = search.part(place, here, waiting)
        for search in sparse:
            if not here:
                break
            here, gone = search.with_last_block(place, here)
            waiting[place - 1] |= gone
        for search in searches:
            if not here:
                break
            here = search.part(place, here, waiting)
        if here:
            yield place * step, here
    if waiting[0]:
        yield 0, waiting[0]


class _GroupSearch:
    """One group's answers at falling boundaries. A place is a boundary's number: its tokens over the granularity."""

    def __init__(self, group: GroupHolders, request: ResumePoint, step: int) -> None:
        self.group = group
        self._request = request
        self._step = step
        self._lookahead = draft_lookahead(group.spec, is_draft=group.is_draft, granularity=step)
        self._runs: dict[int, list[int]] = {}
        """First block of a run -> by its length less one, the holders that have the whole run."""

    def with_last_block(self, place: int, holders: int) -> tuple[int, int]:
        """Those that have the block that ends at a boundary, and those that lack it."""
        block = place * self._step // self.group.spec.block_size - 1
        held = self.group.holders[block] if block < len(self.group.holders) else 0
        return holders & held, holders & ~held

    def part(self, place: int, holders: int, waiting: list[int]) -> int:
        """Those that can resume at a boundary. The others go to the largest one below that they may resume at."""
        point = self._request._replace(num_tokens=place * self._step)
        spec, is_draft = self.group.spec, self.group.is_draft
        for needed in blocks_to_resume(spec, point, is_draft=is_draft, granularity=self._step):
            if not holders:
                break
            run = self._run(needed)
            missing = holders & ~run[-1 + len(needed)]
            holders &= ~missing
            while missing:
                length = _first_without(run, missing)
                gone = missing & ~run[length]
                missing &= ~gone
                waiting[min(place - 1, self._place_without(needed.start + length))] |= gone
        return holders

    def _run(self, needed: range) -> list[int]:
        run = self._runs.get(needed.start, [])
        if len(run) < len(needed):
            held = list(self.group.holders[needed.start : needed.stop])
            held += [0] * (len(needed) - len(held))
            run = self._runs[needed.start] = list(accumulate(held, and_))
        return run

    def _place_without(self, missing: int) -> int:
        """The largest boundary for a holder that lacks a block which is needed further up."""
        if not self.group.spec.indexes_decoder_tokens:
            return 0  # it is needed wherever the decoder stands
        return max(0, missing * self.group.spec.block_size - self._lookahead) // self._step


def _first_without(run: Sequence[int], holders: int) -> int:
    """The index of the first block of a run that one of these holders lacks. The sets of a run only shrink."""
    low, high = 0, len(run) - 1
    while low < high:
        middle = (low + high) // 2
        if holders & ~run[middle]:
            high = middle
        else:
            low = middle + 1
    return low
