"""vLLM's groups as Octavo's policies and manager know them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import assert_never

from octavo.chunks import GroupOffloadConfig
from octavo.host import SlotPlan
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
    """A group whose chunks hold the parts of several ranks, each in whole parts of slots."""

    shared_chunk_bytes: int

    @property
    def chunk_bytes(self) -> int:
        return self.shared_chunk_bytes


def groups_of_rank(reports: Sequence[RankReport], blocks_per_chunk: int) -> list[GroupOffloadConfig]:
    """The groups by their index in keys, each with the largest page of any rank. An index that vLLM does not offload
    becomes a group that needs nothing."""
    by_id = {group.group_id: group for group in reports[0].groups}
    largest = {
        group_id: max(group.page_bytes for report in reports for group in report.groups if group.group_id == group_id)
        for group_id in by_id
    }
    return [
        GroupOffloadConfig(
            spec=_spec_of(by_id[group_id]) if group_id in by_id else _NOTHING,
            blocks_per_chunk=blocks_per_chunk,
            page_size_bytes=largest.get(group_id, 0),
        )
        for group_id in range(max(by_id) + 1)
    ]


def groups_of_all_ranks(groups: Sequence[GroupOffloadConfig], plan: SlotPlan, num_ranks: int) -> list[SharedGroup]:
    """The same groups in slots that hold the parts of all ranks. With one rank, the last slot may be filled in part."""
    return [
        SharedGroup(
            spec=group.spec,
            blocks_per_chunk=group.blocks_per_chunk,
            page_size_bytes=group.page_size_bytes * num_ranks,
            shared_chunk_bytes=group.chunk_bytes
            if num_ranks == 1
            else plan.slots_for(group.chunk_bytes) * plan.slot_bytes * num_ranks,
        )
        for group in groups
    ]


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
    """Asked at a point that ends both a chunk and a reach, where the rule reaches farthest back."""
    spec = _spec_of(group)
    end = lcm(blocks_per_chunk * group.tokens_per_block, max(1, group.reach_tokens))
    points = (end,) if spec.holds_checkpoints else (end - 1, end)
    needed = [run.start for tokens in points for run in spec.needed_blocks(ResumePoint(num_tokens=tokens))]
    last = end // group.tokens_per_block - 1
    return max(0, min([*needed, last]) - (last + 1 - blocks_per_chunk))


_NOTHING = EncoderOnlyAttentionSpec(block_size=1, num_kv_heads=1, head_size=1)


def _spec_of(group: GroupReport) -> KVCacheSpec:
    """A spec with the group's rule. Its other values do not count: the report has the bytes."""
    block_size, reach = group.tokens_per_block, group.reach_tokens
    match group.rule:
        case GroupRule.WHOLE:
            return FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=1)
        case GroupRule.WINDOW:
            return SlidingWindowSpec(block_size=block_size, sliding_window=reach, num_kv_heads=1, head_size=1)
        case GroupRule.CHUNK:
            return ChunkedLocalAttentionSpec(
                block_size=block_size, attention_chunk_size=reach, num_kv_heads=1, head_size=1
            )
        case GroupRule.STATE:
            return MambaSpec(block_size=block_size, shapes=((1,),), dtypes=(CacheDType.FLOAT32,))
        case never:
            assert_never(never)
