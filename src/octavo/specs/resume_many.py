"""The resume rule for many holders at once: an engine of a fleet each, as one bit of an integer.

The search goes down the boundaries, as `longest_resume` does, and asks the same `needed_blocks`. At each boundary it
looks at the set of holders that may resume there. A group parts the set: holders that lack a block wait further down,
at the boundary that the law of resumption allows them, and who is left after all groups resumes here:

    boundary        n3              n2              n1
    may resume      {a, b, c}  ->   {b, c}      ->  {c}
    all groups      {a}             {b}             {c}

Windows and recurrent states need the block that ends at a boundary, and few holders have that one. So only boundaries
at which somebody has it are looked at; whoever lacks it is carried down.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
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
    dense = [search for search in searches if not search.group.spec.always_needs_last_block]
    able = [holders] * top
    for search in searches:
        if search.group.spec.always_needs_last_block:
            able = list(map(and_, able, search.with_last_blocks(top)))
    carried = 0
    for place in range(top, 0, -1):
        carried |= waiting[place]
        if place == top:  # most holders lack most of a prompt, and go far down at once
            for search in dense:
                carried = search.part(place, carried, waiting)
        here = carried & able[place - 1]
        if not here:
            continue
        carried ^= here
        for search in searches:
            here = search.part(place, here, waiting)
            if not here:
                break
        else:
            yield place * step, here
    carried |= waiting[0]
    if carried:
        yield 0, carried


class _GroupSearch:
    """One group's answers at falling boundaries. A place is a boundary's number: its tokens over the granularity."""

    def __init__(self, group: GroupHolders, request: ResumePoint, step: int) -> None:
        self.group = group
        self._request = request
        self._step = step
        self._lookahead = draft_lookahead(group.spec, is_draft=group.is_draft, granularity=step)
        self._runs: dict[int, list[int]] = {}
        """First block of a run -> by its length less one, the holders that have the whole run."""

    def with_last_blocks(self, top: int) -> list[int]:
        """By boundary, from the first to `top`: those that have the block that ends there."""
        ratio = self._step // self.group.spec.block_size
        held = list(self.group.holders[ratio - 1 : top * ratio : ratio])
        return held + [0] * (top - len(held))

    def part(self, place: int, holders: int, waiting: list[int]) -> int:
        """Those that can resume at a boundary. The others go to the largest one below that they may resume at."""
        _, num_prompt_tokens, num_encoder_tokens = self._request
        point = ResumePoint(place * self._step, num_prompt_tokens, num_encoder_tokens)
        spec, is_draft = self.group.spec, self.group.is_draft
        for needed in blocks_to_resume(spec, point, is_draft=is_draft, granularity=self._step):
            if not holders:
                break
            having = self._with_all(needed, holders)
            missing = holders ^ having
            holders = having
            run = self._run(needed) if missing else []
            length = 0
            while missing:
                length = _first_without(run, missing, length)
                gone = missing & ~run[length]
                missing ^= gone
                waiting[min(place - 1, self._place_without(needed.start + length))] |= gone
        return holders

    def _with_all(self, needed: range, holders: int) -> int:
        """Those that have all these blocks."""
        if needed.start and needed.start not in self._runs:  # a window, which nobody asks for again
            held = self.group.holders[needed.start : needed.stop]
            return reduce(and_, held, holders) if len(held) == len(needed) else 0
        return holders & self._run(needed)[len(needed) - 1]

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


def _first_without(run: Sequence[int], holders: int, low: int) -> int:
    """The index of the first block of a run, from `low` on, that one of these holders lacks. The sets of a run only
    shrink. What comes next is mostly near."""
    high, stride = low, 1
    while high < len(run) - 1 and holders & run[high] == holders:
        low, high, stride = high + 1, min(high + stride, len(run) - 1), 2 * stride
    while low < high:
        middle = (low + high) // 2
        if holders & ~run[middle]:
            high = middle
        else:
            low = middle + 1
    return low
