"""What one publisher holds, kept from its events: by group, medium and hash.

It answers how many tokens of a prompt that engine could resume, with the same rule that the engine itself uses. After
a resync it knows only what has been stored since: what it says is there is there, and `is_complete` says that there
may be more.
"""

from collections.abc import Collection, Iterable, Sequence

from octavo.errors import BlockSizeError
from octavo.events.messages import AllBlocksCleared, AnyEvent, BlockRemoved, BlockStored, ExternalHash
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
    ) -> None:
        for spec in specs:
            if spec.block_size % hash_block_size:
                raise BlockSizeError(
                    f"block_size = {spec.block_size} of a group of kind {spec.kind} is not a multiple of the "
                    f"publisher's hash_block_size = {hash_block_size}"
                )
        self.is_complete = is_complete
        """Whether nothing that the publisher holds can be unknown here."""
        self.events_of_unknown_groups = 0
        self._specs = list(specs)
        self._hash_block_size = hash_block_size
        self._draft_groups = frozenset(draft_groups)
        self._media: dict[str | None, int] = {}
        """Medium -> its bit."""
        self._blocks: list[dict[ExternalHash, int]] = [{} for _ in specs]
        """By group: the media on which a block is, as bits."""

    @classmethod
    def of_plan(cls, plan: PublishedPlan, *, is_complete: bool = True) -> "GroupView":
        """A view of a publisher that told its plan."""
        return cls(
            [group.spec() for group in plan.groups],
            hash_block_size=plan.hash_block_size,
            draft_groups=[index for index, group in enumerate_groups(plan.groups) if group.is_draft],
            is_complete=is_complete,
        )

    def apply(self, events: Iterable[AnyEvent]) -> None:
        """Takes one batch of events, in their order."""
        for event in events:
            match event:
                case AllBlocksCleared():
                    self._forget_blocks()
                    self.is_complete = True
                case BlockStored() | BlockRemoved():
                    blocks = self._blocks_of(event.group_idx)
                    if blocks is None:
                        self.events_of_unknown_groups += 1
                    elif isinstance(event, BlockStored):
                        self._store(blocks, event)
                    else:
                        self._remove(blocks, event)

    def resync(self) -> None:
        """The publisher's state is unknown: forget what may be stale."""
        self._forget_blocks()
        self.is_complete = False

    def hashes(self, group_idx: GroupIdx, medium: str | None) -> set[ExternalHash]:
        """The blocks of a group on one medium."""
        bit = self._media.get(medium, 0)
        return {block_hash for block_hash, media in self._blocks[group_idx].items() if media & bit}

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
        mask = -1 if media is None else sum(self._media.get(medium, 0) for medium in set(media))
        groups = [
            GroupAvailability(
                spec=spec,
                blocks=_BlocksInView(self._blocks[index], self._hashes_of(index, hashes, encoder_hashes), mask),
                is_draft=index in self._draft_groups,
            )
            for index, spec in enumerate_groups(self._specs)
        ]
        prompt = num_tokens if num_prompt_tokens is None else num_prompt_tokens
        return longest_resume(groups, ResumePoint(num_tokens, prompt, num_encoder_tokens))

    def _hashes_of(
        self, group_idx: GroupIdx, hashes: Sequence[ExternalHash], encoder_hashes: Sequence[ExternalHash]
    ) -> Sequence[ExternalHash]:
        spec = self._specs[group_idx]
        if not spec.indexes_decoder_tokens:
            return encoder_hashes
        ratio = spec.block_size // self._hash_block_size
        return hashes[ratio - 1 :: ratio]

    def _blocks_of(self, group_idx: GroupIdx | None) -> dict[ExternalHash, int] | None:
        if group_idx is None or not 0 <= group_idx < len(self._blocks):
            return None
        return self._blocks[group_idx]

    def _store(self, blocks: dict[ExternalHash, int], event: BlockStored) -> None:
        bit = self._media.setdefault(event.medium, 1 << len(self._media))
        for block_hash in event.block_hashes:
            blocks[block_hash] = blocks.get(block_hash, 0) | bit

    def _remove(self, blocks: dict[ExternalHash, int], event: BlockRemoved) -> None:
        bit = self._media.get(event.medium, 0)
        for block_hash in event.block_hashes:
            left = blocks.get(block_hash, 0) & ~bit
            if left:
                blocks[block_hash] = left
            else:
                blocks.pop(block_hash, None)

    def _forget_blocks(self) -> None:
        for blocks in self._blocks:
            blocks.clear()


class _BlocksInView:
    """One group's blocks of one prompt, on the media that count."""

    def __init__(self, blocks: dict[ExternalHash, int], hashes: Sequence[ExternalHash], mask: int) -> None:
        self._blocks = blocks
        self._hashes = hashes
        self._mask = mask

    def first_missing(self, start: int, stop: int) -> int:
        for block in range(start, min(stop, len(self._hashes))):
            if not self._blocks.get(self._hashes[block], 0) & self._mask:
                return block
        return max(start, min(stop, len(self._hashes)))

    def last_available(self, stop: int) -> int:
        for block in range(min(stop, len(self._hashes)) - 1, -1, -1):
            if self._blocks.get(self._hashes[block], 0) & self._mask:
                return block
        return -1
