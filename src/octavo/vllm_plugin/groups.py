"""vLLM's groups as Octavo's policies and manager know them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from octavo.offload.arena import SlotPlan
from octavo.policies import GroupOffloadConfig
from octavo.specs import (
    CacheDType,
    ChunkedLocalAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
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
    """The groups by their number in keys, with the largest page that a rank has. A number that vLLM does not offload
    is a group that needs nothing."""
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
    """The same groups in slots that hold the parts of all ranks. One rank fills the last slot as far as it needs."""
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


_NOTHING = EncoderOnlyAttentionSpec(block_size=1, num_kv_heads=1, head_size=1)


def _spec_of(group: GroupReport) -> KVCacheSpec:
    """Bytes are in the report; of a spec only its rule is asked."""
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
