"""What a resume point needs of each group, in chunks: the groups' specs, asked once per policy or per point."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from octavo.chunks import GroupOffloadConfig
from octavo.ids import enumerate_groups
from octavo.policies.stretch_columns import Links
from octavo.specs import KVCacheSpec, ResumePoint

_MOST_KNOWN = 1 << 12
"""Boundaries whose need is remembered. Beyond this number all are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNeeds:
    """One group's part in a resume point."""

    suffix: bytes
    """The last four bytes of its keys."""
    spec: KVCacheSpec
    tokens_per_chunk: int
    links: Links
    num_chunks: Mapping[int, int]
    """By boundary: how many of the chunks up to there a resume there needs. For a group that needs its whole prefix the
    last chunk stands for all, since it holds the others."""


class _Remembered(dict[int, int]):
    """What a function says of each number, asked once; a look at what is known costs no call of ours."""

    def __init__(self, function: Callable[[int], int]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, number: int) -> int:
        if len(self) >= _MOST_KNOWN:
            self.clear()
        known = self[number] = self._function(number)
        return known


def needs_of_groups(groups: Sequence[GroupOffloadConfig]) -> list[GroupNeeds]:
    return [
        GroupNeeds(
            suffix=index.to_bytes(4, "big"),
            spec=group.spec,
            tokens_per_chunk=group.tokens_per_chunk,
            links=_links_of(group.spec),
            num_chunks=_Remembered(partial(_count_chunks, group)),
        )
        for index, group in enumerate_groups(groups)
    ]


def _count_chunks(group: GroupOffloadConfig, num_tokens: int) -> int:
    ranges = group.spec.needed_blocks(ResumePoint(num_tokens))
    if not ranges or _links_of(group.spec) is Links.PREFIX:
        return len(ranges[:1])
    last_chunk = -(-num_tokens // group.tokens_per_chunk) - 1
    return last_chunk - ranges[0].start // group.blocks_per_chunk + 1


def _links_of(spec: KVCacheSpec) -> Links:
    if spec.holds_checkpoints:
        return Links.NONE
    return Links.PREFIX if spec.needs_whole_prefix else Links.RUN
