"""Which chunks of a request are worth storing inside vLLM, which offers every chunk of every group.

Full attention is stored, and the states that vLLM takes, which are few. Of windows a chunk is stored if a resume at a
promised boundary needs it: the prompt's end, the branch where others left the prefix, points inside what is computed,
and all boundaries after the prompt, since nobody knows where the answer ends.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import lcm

from octavo.chunks import GroupOffloadConfig
from octavo.ids import GroupIdx, enumerate_groups
from octavo.offload import PromiseRule
from octavo.specs import (
    ChunkedLocalAttentionSpec,
    KVCacheSpec,
    PromisePlan,
    ResumePoint,
    SlidingWindowSpec,
)

_UNDER_PRESSURE = 0.0
"""The free share of memory for which points are planned. vLLM offers a chunk once, long before it is known which chunks
it will push out, so points are planned as if memory were full."""


class PromisedChunks:
    """The rule of promises, for requests that vLLM cuts into chunks."""

    def __init__(self, groups: Sequence[GroupOffloadConfig], *, draft_tokens: int = 0) -> None:
        """`draft_tokens`: how much before the end of what is there vLLM resumes."""
        self._draft_tokens = draft_tokens
        self._groups = [replace(group, spec=as_vllm_reads(group.spec)) for group in groups]
        kept = [group for group in self._groups if group.page_size_bytes and group.spec.indexes_decoder_tokens]
        self._granularity = lcm(*(group.tokens_per_chunk for group in kept))
        self._rule = PromiseRule(kept, self._granularity)
        self._has_states = any(group.spec.holds_checkpoints for group in kept)
        self.is_prefix = [group.spec.needs_whole_prefix for group in self._groups]

    def boundary(self, num_tokens: int) -> int:
        """The last boundary at or before this number of tokens; 0 if there is none."""
        return num_tokens // self._granularity * self._granularity

    def prompt_point(self, num_prompt_tokens: int) -> int:
        """The boundary that the next request with the same prompt uses: its last one, or where vLLM keeps its state."""
        if self._draft_tokens and self._has_states:
            return self._before_drafts(num_prompt_tokens)
        return self.boundary(num_prompt_tokens)

    def point_of_resume(self, num_tokens: int) -> int:
        """The boundary that a resume with this many tokens uses. Without states it is where the drafts end."""
        return num_tokens if self._has_states or not num_tokens else num_tokens + self._draft_tokens

    def branch(self, num_prompt_tokens: int, known_tokens: int) -> int:
        """Where vLLM is to keep windows and states beside those of the prompt's end: at the boundary where others left
        what is known of the prefix; 0 if there is none. With drafts it is the boundary where the next one resumes. A
        new prompt has one too, unless there are states: of these alone vLLM knows where they will be wanted."""
        if not self._draft_tokens:
            return self.boundary(known_tokens)
        return self._before_drafts(known_tokens or (0 if self._has_states else num_prompt_tokens))

    def _before_drafts(self, end: int) -> int:
        return self.boundary(max(0, end // self._draft_tokens - 1) * self._draft_tokens)

    def inside(self, num_prompt_tokens: int, known_tokens: int) -> int:
        """A boundary a little before the prompt's end, of which vLLM is to keep windows and states: the next prompt may
        differ only in its end. `known_tokens`: where this one resumes. 0 if what is new is too short, or with drafts.

        With blocks of 128, a new prompt of 4,100 tokens has it at 3,840."""
        if self._draft_tokens:
            return 0
        return self._planned(num_prompt_tokens, known_tokens).before_end or 0

    def plan(self, num_prompt_tokens: int, known_tokens: int, inside: int = 0) -> PromisePlan:
        """Plans the promises of a prompt of which `known_tokens` were found when vLLM looked. `inside` is the boundary
        of that name, if vLLM was told."""
        plan = replace(self._planned(num_prompt_tokens, known_tokens), before_end=inside or None)
        if plan.prompt_boundary < num_prompt_tokens:
            return plan
        return replace(plan, asked=(max(0, num_prompt_tokens - self._granularity),))  # the same prompt computes its end

    def _planned(self, num_prompt_tokens: int, known_tokens: int) -> PromisePlan:
        boundary = self.boundary(num_prompt_tokens)
        known = self.boundary(min(known_tokens, boundary))
        plan = PromisePlan(granularity=self._granularity, prompt_boundary=boundary, branch_point=known or None)
        return self._rule.planned(plan, known, _UNDER_PRESSURE)

    def is_promised(self, plan: PromisePlan, group_idx: GroupIdx, end: int) -> bool:
        """Whether `end`, the token with which a chunk of this group ends, is a promised boundary."""
        if self._groups[group_idx].spec.holds_checkpoints or plan.is_promised(end):
            return True
        return end > plan.prompt_boundary and not end % plan.granularity

    def is_needed(self, plan: PromisePlan, group_idx: GroupIdx, end: int) -> bool:
        """Whether a promise needs the chunk of this group that ends with token `end`."""
        group = self._groups[group_idx]
        size = group.tokens_per_chunk
        if self.is_prefix[group_idx] or group.spec.holds_checkpoints or end > plan.prompt_boundary or end % size:
            return True
        point = plan.next_after(end - size)
        while point is not None and point <= plan.prompt_boundary:
            first = self._first_needed(group, point)
            if first >= end:
                return False
            if first >= 0:
                return True
            point = plan.next_after(point)
        return False

    def chunks_of_resume(self, num_tokens: int) -> Iterator[tuple[GroupIdx, int]]:
        """The group and the end of each whole chunk that a resume at this boundary needs, group by group."""
        for group_idx, group in enumerate_groups(self._groups):
            size = group.tokens_per_chunk
            more = self._draft_tokens if self._has_states and self.is_prefix[group_idx] else 0
            for run in group.spec.needed_blocks(ResumePoint(num_tokens)) if group.page_size_bytes else ():
                first = run.start * group.spec.block_size // size
                last = (run.stop * group.spec.block_size + more) // size
                yield from ((group_idx, end * size) for end in range(first + 1, last + 1))

    @staticmethod
    def _first_needed(group: GroupOffloadConfig, point: int) -> int:
        """The first token of the first block that a resume at this point, or one token before it, needs; -1 if it needs
        none."""
        runs = [run for tokens in (point - 1, point) for run in group.spec.needed_blocks(ResumePoint(tokens))]
        return min(run.start for run in runs) * group.spec.block_size if runs else -1


def as_vllm_reads(spec: KVCacheSpec) -> KVCacheSpec:
    """vLLM looks for as many chunks as a whole attention chunk has, wherever in it a request resumes."""
    if not isinstance(spec, ChunkedLocalAttentionSpec):
        return spec
    return SlidingWindowSpec(
        block_size=spec.block_size,
        num_kv_heads=spec.num_kv_heads,
        head_size=spec.head_size,
        sliding_window=spec.attention_chunk_size,
    )
