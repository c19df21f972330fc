"""`GroupView`: the blocks that one publisher holds, by group and medium, kept from its events.

It answers how many tokens of a prompt the publisher's engine could resume, with the engine's own rule. A view may miss
blocks, for example after a resync; `is_complete` is False from then on. A view never claims more than the publisher
told, but events that it could not apply may have told of a removal or of a group that the rule needs.
"""

from collections.abc import Collection, Iterable, Sequence

from octavo.errors import BlockSizeError
from octavo.events.group_blocks import GroupBlocks
from octavo.events.messages import MEDIUM_GPU, AllBlocksCleared, AnyEvent, BlockRemoved, BlockStored, ExternalHash
from octavo.events.published_plan import PublishedPlan
from octavo.ids import GroupIdx, enumerate_groups
from octavo.specs import GroupAvailability, KVCacheSpec, Resume, ResumePoint, longest_resume

_Place = tuple[str | None, str | None]
"""A medium and the tier that owns the blocks there."""


class GroupView:
    """The blocks of one publisher, as its events tell."""

    def __init__(
        self,
        specs: Sequence[KVCacheSpec],
        *,
        hash_block_size: int,
        draft_groups: Collection[int] = (),
        is_complete: bool = True,
        clears_all_media: bool = False,
    ) -> None:
        for spec in specs:
            if spec.block_size % hash_block_size:
                raise BlockSizeError(
                    f"block_size = {spec.block_size} of a group of kind {spec.kind} is not a multiple of the "
                    f"publisher's hash_block_size = {hash_block_size}"
                )
        self.is_complete = is_complete
        """Whether the view knows all that the publisher holds, and could apply all that it told."""
        self.num_dropped_events = 0
        """Events that name no group of the plan, or blocks that the prompt's hashes cannot name."""
        self._specs = list(specs)
        self._hash_block_size = hash_block_size
        self._draft_groups = frozenset(draft_groups)
        self._clears_all_media = clears_all_media
        self._bits: dict[_Place, int] = {}
        self._groups = [GroupBlocks(spec.block_size) for spec in specs]

    @classmethod
    def of_plan(cls, plan: PublishedPlan, *, is_complete: bool = True) -> "GroupView":
        """A view of a publisher that told its plan."""
        return cls(
            [group.spec() for group in plan.groups],
            hash_block_size=plan.hash_block_size,
            draft_groups=[index for index, group in enumerate_groups(plan.groups) if group.is_draft],
            is_complete=is_complete,
            clears_all_media=plan.clears_all_media,
        )

    def apply(self, events: Iterable[AnyEvent]) -> None:
        """Takes one batch of events, in their order."""
        for event in events:
            match event:
                case AllBlocksCleared():
                    self._clear()
                case BlockStored():
                    self._store(event)
                case BlockRemoved():
                    self._remove(event)

    def resync(self) -> None:
        """The publisher's state is unknown: forget what may be stale."""
        self._forget_blocks()
        self.is_complete = False

    def hashes(self, group_idx: GroupIdx, medium: str | None) -> set[ExternalHash]:
        """The blocks of a group on one medium; a chunk by its last hash if the publisher tells chunks."""
        return self._groups[group_idx].hashes(self._bits_of([medium]))

    def longest_resume(
        self,
        hashes: Sequence[ExternalHash],
        num_tokens: int,
        *,
        media: Collection[str | None] | None = None,
        num_prompt_tokens: int | None = None,
        encoder_hashes: Sequence[ExternalHash] = (),
        num_encoder_tokens: int = 0,
    ) -> Resume:
        """How far the engine could resume a prompt, given the hashes of its hash blocks, in the publisher's form.

        `media` limits the question to blocks on some media; by default any will do.
        """
        bits = -1 if media is None else self._bits_of(media)
        groups = [
            GroupAvailability(
                spec=spec,
                blocks=self._groups[index].in_prompt(
                    hashes if spec.indexes_decoder_tokens else encoder_hashes,
                    self._hash_block_size if spec.indexes_decoder_tokens else spec.block_size,
                    bits,
                ),
                is_draft=index in self._draft_groups,
            )
            for index, spec in enumerate_groups(self._specs)
        ]
        prompt = num_tokens if num_prompt_tokens is None else num_prompt_tokens
        return longest_resume(groups, ResumePoint(num_tokens, prompt, num_encoder_tokens))

    def _clear(self) -> None:
        """vLLM means its device only: then blocks of slower media are still there, and not known here any more."""
        has_slower_media = any(medium != MEDIUM_GPU for medium, _ in self._bits)
        self._forget_blocks()
        if self._clears_all_media:
            self.is_complete = True
        elif has_slower_media:
            self.is_complete = False

    def _store(self, event: BlockStored) -> None:
        group = self._group_of(event)
        if group is None:
            return
        if event.block_size == 0:  # maybe a chunk of an unknown size, whose last block is there at least
            self.is_complete = False
        block_size = event.block_size or group.block_size
        if block_size % self._hash_block_size:
            self._drop()
            return
        is_counted = event.medium != MEDIUM_GPU and bool(event.token_ids)  # vLLM's self-describing form
        group.store(event.block_hashes, block_size=block_size, bit=self._bit_of(event), is_counted=is_counted)

    def _remove(self, event: BlockRemoved) -> None:
        group = self._group_of(event)
        if group is not None and group.remove(event.block_hashes, bit=self._bit_of(event)):
            self.is_complete = False

    def _group_of(self, event: BlockStored | BlockRemoved) -> GroupBlocks | None:
        if event.group_idx is None or not 0 <= event.group_idx < len(self._groups):
            self._drop()
            return None
        return self._groups[event.group_idx]

    def _drop(self) -> None:
        self.num_dropped_events += 1
        self.is_complete = False

    def _bit_of(self, event: BlockStored | BlockRemoved) -> int:
        return self._bits.setdefault((event.medium, event.ownership), 1 << len(self._bits))

    def _bits_of(self, media: Collection[str | None]) -> int:
        return sum(bit for (medium, _), bit in self._bits.items() if medium in media)

    def _forget_blocks(self) -> None:
        for group in self._groups:
            group.clear()
