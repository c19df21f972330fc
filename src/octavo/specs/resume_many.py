"""The resume rule for many holders at once: an engine of a fleet each, as one bit of an integer.

The search goes down the boundaries, as `longest_resume` does, and asks the same `needed_blocks`. At each boundary it
looks at the set of holders that may resume there, and who is left after all groups resumes here:

    boundary        n3              n2              n1
    may resume      {a, b, c}  ->   {b, c}      ->  {c}
    all groups      {a}             {b}             {c}

Most groups are answered for all boundaries at once. One that needs every block at the last boundary needs, by the law
of resumption, every block at each: the holders of a whole prefix, which only become fewer. Recurrent states and windows
need the block that ends at a boundary, and few holders have that one; states need no other. Windows, and other groups,
part the set: holders that lack a block wait further down, at the boundary that the law allows them.
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
    is_draft: bool


def longest_resumes(groups: Sequence[GroupHolders], request: ResumePoint, holders: int) -> Iterator[tuple[int, int]]:
    """The resume points of these holders: (tokens, holders), the longest first. Holders that can resume nothing come
    last, with 0 tokens. Each holder is told once, at the boundary that `longest_resume` would find for it."""
    step = resume_granularity([group.spec for group in groups])
    top = last_boundary(request.num_tokens, step, has_draft=any(group.is_draft for group in groups)) // step
    searches = [_GroupSearch(group, request, step) for group in groups]
    able = [holders] * top
    parting = []
    for search in searches:
        if search.needs_all_blocks(top):
            able = list(map(and_, able, search.with_all_blocks(top)))
            continue
        if search.group.spec.always_needs_last_block:
            able = list(map(and_, able, search.with_last_blocks(top)))
        if not search.group.spec.holds_checkpoints:
            parting.append(search)
    waiting = [0] * top
    waiting.append(holders)
    carried = 0
    for index in range(top, 0, -1):
        carried |= waiting[index]
        here = carried & able[index - 1]
        if not here:
            continue
        carried ^= here
        for search in parting:
            here = search.part(index, here, waiting)
            if not here:
                break
        else:
            yield index * step, here
    carried |= waiting[0]
    if carried:
        yield 0, carried


class _GroupSearch:
    """One group's answers at falling boundaries. An index is a boundary's number: its tokens over the granularity."""

    def __init__(self, group: GroupHolders, request: ResumePoint, step: int) -> None:
        self.group = group
        self._request = request
        self._step = step
        self._lookahead = draft_lookahead(group.spec, is_draft=group.is_draft, granularity=step)
        self._runs: dict[int, list[int]] = {}
        """First block of a run -> by its length less one, the holders that have the whole run."""
        self._ends_of: dict[tuple[int, int], list[int]] = {}
        """First block and length of a stretch -> by block, the holders that have it and all after it."""

    def needs_all_blocks(self, top: int) -> bool:
        """Whether a resume at any boundary up to `top` needs every block before it."""
        needed = self._needed(top) if top else ()
        stop = self._num_blocks(top)
        return self.group.spec.indexes_decoder_tokens and needed == (range(stop),)

    def with_all_blocks(self, top: int) -> list[int]:
        """By boundary, from the first to `top`: those that have every block that it needs."""
        ratio = self._step // self.group.spec.block_size
        run = self._run(range(self._num_blocks(top)))
        return run[self._num_blocks(1) - 1 :: ratio]

    def with_last_blocks(self, top: int) -> list[int]:
        """By boundary, from the first to `top`: those that have the block that ends there."""
        ratio = self._step // self.group.spec.block_size
        held = list(self.group.holders[ratio - 1 : top * ratio : ratio])
        return held + [0] * (top - len(held))

    def part(self, index: int, holders: int, waiting: list[int]) -> int:
        """Those that can resume at a boundary. The others go to the largest one below that they may resume at."""
        for needed in self._needed(index):
            missing = holders & ~self._with_all(needed)
            if not missing:
                continue
            holders ^= missing
            run, length = self._run(needed), 0
            while missing:
                length = _first_without(run, missing, length)
                gone = missing & ~run[length]
                missing ^= gone
                waiting[min(index - 1, self._index_without(needed.start + length))] |= gone
            if not holders:
                break
        return holders

    def _needed(self, index: int) -> tuple[range, ...]:
        _, num_prompt_tokens, num_encoder_tokens = self._request
        point = ResumePoint(index * self._step, num_prompt_tokens, num_encoder_tokens)
        return blocks_to_resume(self.group.spec, point, is_draft=self.group.is_draft, granularity=self._step)

    def _num_blocks(self, index: int) -> int:
        """Up to a boundary, and a draft group's witness."""
        return (index * self._step + self._lookahead) // self.group.spec.block_size

    def _with_all(self, needed: range) -> int:
        """Those that have all these blocks. A window is the end of one stretch as long, and the beginning of the next:

        blocks    0 . . . 4 . . . 8 . . . 12         a window of 4 that needs 6, 7, 8, 9
        kept      {0 to 3} 4-7, 5-7, 6-7, 7 ...      the ends of each stretch: 6-7
                  0, 0-1, ...  ...  8, 8-9, ...      its beginnings: 8-9
        """
        width = len(needed)
        if width == 1:
            held = self.group.holders
            return held[needed.start] if needed.start < len(held) else 0
        first = needed.start // width * width
        if needed.start == first:
            return self._run(needed)[width - 1]
        beginning = range(first + width, needed.stop)
        return self._ends(first, width)[needed.start - first] & self._run(beginning)[len(beginning) - 1]

    def _ends(self, first: int, width: int) -> list[int]:
        """By first block: those that have all from it to the end of a stretch."""
        if (first, width) not in self._ends_of:
            held = self._held(range(first, first + width))
            self._ends_of[first, width] = list(accumulate(reversed(held), and_))[::-1]
        return self._ends_of[first, width]

    def _run(self, needed: range) -> list[int]:
        run = self._runs.get(needed.start, [])
        if len(run) < len(needed):
            run = self._runs[needed.start] = list(accumulate(self._held(needed), and_))
        return run

    def _held(self, blocks: range) -> list[int]:
        held = list(self.group.holders[blocks.start : blocks.stop])
        return held + [0] * (len(blocks) - len(held))

    def _index_without(self, missing: int) -> int:
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
