"""`GroupView`: the blocks that one publisher holds, by group and medium, kept from its events.

It answers how many tokens of a prompt the publisher's engine could resume, with the engine's own rule. A view may miss
blocks, for example after a resync; `is_complete` is False from then on. A view never claims more than the publisher
told, but events that it could not apply may have told of a removal or of a group that the rule needs.
"""

from collections.abc import Collection, Iterable, Sequence

from octavo.events.held_blocks import HeldBlocks, Media
from octavo.events.messages import AnyEvent, ExternalHash
from octavo.events.published_plan import PublishedPlan
from octavo.ids import GroupIdx, enumerate_groups
from octavo.specs import GroupAvailability, KVCacheSpec, Resume, ResumePoint, longest_resume


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
        self._blocks = HeldBlocks(specs, hash_block_size=hash_block_size, clears_all_media=clears_all_media)
        self._holder = self._blocks.add_holder(is_complete=is_complete)
        self._draft_groups = frozenset(draft_groups)

    @classmethod
    def of_plan(cls, plan: PublishedPlan) -> "GroupView":
        """A view of a publisher that told its plan."""
        return cls(
            plan.specs,
            hash_block_size=plan.hash_block_size,
            draft_groups=plan.draft_groups,
            clears_all_media=plan.clears_all_media,
        )

    @property
    def is_complete(self) -> bool:
        """Whether the view knows all that the publisher holds, and could apply all that it told."""
        return self._holder.is_complete

    @property
    def num_dropped_events(self) -> int:
        """Events that name no group of the plan, blocks that the prompt's hashes cannot name, or more than there is
        room for."""
        return self._holder.num_dropped_events

    def apply(self, events: Iterable[AnyEvent]) -> None:
        """Takes one batch of events, in their order."""
        self._blocks.apply(self._holder, events)

    def resync(self) -> None:
        """The publisher's state is unknown: forget what may be stale."""
        self._blocks.resync(self._holder)

    def told_all(self) -> None:
        """The publisher has told all that it holds: `Delivered.is_whole` says so."""
        self._blocks.told_all(self._holder)

    def hashes(self, group_idx: GroupIdx, medium: str | None) -> set[ExternalHash]:
        """The blocks of a group on one medium; a chunk by its last hash if the publisher tells chunks."""
        return self._blocks.hashes(self._holder, group_idx, medium)

    def longest_resume(
        self,
        hashes: Sequence[ExternalHash],
        num_tokens: int,
        *,
        media: Media = None,
        num_prompt_tokens: int | None = None,
        encoder_hashes: Sequence[ExternalHash] = (),
        num_encoder_tokens: int = 0,
    ) -> Resume:
        """How far the engine could resume a prompt, given the hashes of its hash blocks, in the publisher's form.

        `media` limits the question to blocks on some media; by default any will do.
        """
        groups = [
            GroupAvailability(
                spec=spec,
                blocks=self._blocks.in_prompt(
                    self._holder, index, hashes if spec.indexes_decoder_tokens else encoder_hashes, media=media
                ),
                is_draft=index in self._draft_groups,
            )
            for index, spec in enumerate_groups(self._blocks.specs)
        ]
        prompt = num_tokens if num_prompt_tokens is None else num_prompt_tokens
        return longest_resume(groups, ResumePoint(num_tokens, prompt, num_encoder_tokens))
