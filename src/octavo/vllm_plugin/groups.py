"""vLLM's groups as Octavo's policies and manager know them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import assert_never

from octavo.chunks import GroupOffloadConfig
from octavo.specs import (
    CacheDType,
    ChunkedLocalAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    ResumePoint,
    SlidingWindowSpec,
)
from octavo.vllm_plugin.ranks import GroupReport, GroupRule, RankReport


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGroup(GroupOffloadConfig):
    """A group whose pages are those of all ranks together."""

    is_by_rank: bool
    """Whether these are the ranks' pages side by side. Else each page is the one that a rank alone would have."""
    is_draft: bool
    """Whether vLLM resumes a chunk of this group before the end of what is there."""


def groups_of_engine(reports: Sequence[RankReport], blocks_per_chunk: int) -> list[SharedGroup]:
    """The groups by their index in keys. An index that vLLM does not offload becomes a group that needs nothing. Beside
    a draft group, windows reach one of its chunks further back: vLLM resumes that much before the end of what is
    there."""
    by_id = {group.group_id: group for group in reports[0].groups}
    drafts = {group.group_id for report in reports for group in report.groups if group.is_draft}
    more = max((by_id[group_id].tokens_per_block * blocks_per_chunk for group_id in drafts), default=0)
    return [
        SharedGroup(
            spec=_spec_of(by_id[group_id], more) if group_id in by_id else _NOTHING,
            is_draft=group_id in drafts,
            blocks_per_chunk=blocks_per_chunk,
            page_size_bytes=_page_bytes(reports, group_id),
            is_by_rank=bool(why_by_rank(reports, group_id)),
        )
        for group_id in range(max(by_id) + 1)
    ]


def why_by_rank(reports: Sequence[RankReport], group_id: int) -> str:
    """Why a group's pages are the ranks' side by side; empty if they are not."""
    of_ranks = _of_ranks(reports, group_id)
    if len({(group.whole, group.whole_bytes) for group in of_ranks}) > 1:
        return "the ranks lay it out differently"
    return next((group.why_by_rank or "unknown" for group in of_ranks if not group.whole), "")


def _page_bytes(reports: Sequence[RankReport], group_id: int) -> int:
    of_ranks = _of_ranks(reports, group_id)
    if why_by_rank(reports, group_id):
        return len(of_ranks) * max(group.page_bytes for group in of_ranks)
    return of_ranks[0].whole_bytes if of_ranks else 0


def _of_ranks(reports: Sequence[RankReport], group_id: int) -> list[GroupReport]:
    return [group for report in reports for group in report.groups if group.group_id == group_id]


def draft_tokens(groups: Sequence[SharedGroup]) -> int:
    """How many tokens before the end of what is there vLLM resumes: a chunk of the draft group, if there is one."""
    return max((group.tokens_per_chunk for group in groups if group.is_draft), default=0)


def has_state(reports: Sequence[RankReport]) -> bool:
    return any(group.rule is GroupRule.STATE for group in reports[0].groups)


def most_missing(groups: Sequence[GroupReport], blocks_per_chunk: int) -> list[int]:
    """Per group: the number of leading blocks of a chunk that no resume at the chunk's end, or one token before it,
    needs. They need not be stored. Where groups have chunks of different lengths it is 0 for windows, because one
    group's resume may end inside another group's chunk: with chunks of 48 and 96 tokens, a resume at 48 needs the
    first blocks of the longer one."""
    ends_alike = len({group.tokens_per_block for group in groups}) == 1
    return [
        _never_needed(group, blocks_per_chunk) if ends_alike or group.rule is GroupRule.STATE else 0 for group in groups
    ]


def _never_needed(group: GroupReport, blocks_per_chunk: int) -> int:
    """The blocks that are never needed, found at a point that ends both a chunk and a reach, where the rule reaches
    back farthest."""
    spec = _spec_of(group)
    end = lcm(blocks_per_chunk * group.tokens_per_block, max(1, group.reach_tokens))
    points = (end,) if spec.holds_checkpoints else (end - 1, end)
    needed = [run.start for tokens in points for run in spec.needed_blocks(ResumePoint(num_tokens=tokens))]
    last = end // group.tokens_per_block - 1
    return max(0, min([*needed, last]) - (last + 1 - blocks_per_chunk))


_NOTHING = EncoderOnlyAttentionSpec(block_size=1, num_kv_heads=1, head_size=1)


def _spec_of(group: GroupReport, more_tokens: int = 0) -> KVCacheSpec:
    """A spec with the group's rule. Its other values do not matter, since the report has the bytes. `more_tokens`: how
    much further back windows reach."""
    block_size, reach = group.tokens_per_block, group.reach_tokens
    match group.rule:
        case GroupRule.WHOLE:
            return FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1)
        case GroupRule.WINDOW:
            return SlidingWindowSpec(
                block_size=block_size, sliding_window=reach + more_tokens, num_kv_heads=1, head_size=1
            )
        case GroupRule.CHUNK:
            return ChunkedLocalAttentionSpec(
                block_size=block_size, attention_chunk_size=reach, num_kv_heads=1, head_size=1
            )
        case GroupRule.STATE:
            return MambaSpec(block_size=block_size, shapes=((1,),), dtypes=(CacheDType.FLOAT32,))
        case never:
            assert_never(never)
