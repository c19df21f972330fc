"""What a resume point needs of each group, in chunks: the groups' specs, asked once per policy or per point."""

from collections.abc import Sequence
from dataclasses import dataclass, field

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
    blocks_per_chunk: int
    tokens_per_chunk: int
    links: Links
    _known: dict[int, int] = field(default_factory=dict, repr=False)

    def num_chunks(self, num_tokens: int) -> int:
        """How many of the chunks up to `num_tokens` a resume there needs. For a group that needs its whole prefix the
        last chunk stands for all, since it holds the others."""
        known = self._known.get(num_tokens)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[num_tokens] = self._count_chunks(num_tokens)
        return known

    def _count_chunks(self, num_tokens: int) -> int:
        ranges = self.spec.needed_blocks(ResumePoint(num_tokens))
        if not ranges or self.links is Links.PREFIX:
            return len(ranges[:1])
        last_chunk = -(-num_tokens // self.tokens_per_chunk) - 1
        return last_chunk - ranges[0].start // self.blocks_per_chunk + 1


def needs_of_groups(groups: Sequence[GroupOffloadConfig]) -> list[GroupNeeds]:
    return [
        GroupNeeds(
            suffix=index.to_bytes(4, "big"),
            spec=group.spec,
            blocks_per_chunk=group.blocks_per_chunk,
            tokens_per_chunk=group.tokens_per_chunk,
            links=_links_of(group.spec),
        )
        for index, group in enumerate_groups(groups)
    ]


def _links_of(spec: KVCacheSpec) -> Links:
    if spec.holds_checkpoints:
        return Links.NONE
    return Links.PREFIX if spec.needs_whole_prefix else Links.RUN
