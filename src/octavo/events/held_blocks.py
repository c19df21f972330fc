"""`HeldBlocks`: the blocks that publishers with one plan hold, by group and medium, kept from their events.

One publisher or a thousand: each is a `Holder`, and one integer tells all holders of a block. A holder may miss blocks,
for example after a resync; its `is_complete` is False from then on. It never has more than its publisher told, but
events that could not be applied may have told of a removal, or of a group that the resume rule needs.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from octavo.errors import BlockSizeError
from octavo.events.group_blocks import BlocksInPrompt, GroupBlocks, holders_in_prompt
from octavo.events.messages import MEDIUM_GPU, AllBlocksCleared, AnyEvent, BlockRemoved, BlockStored, ExternalHash
from octavo.events.reach import Reach, reach_of
from octavo.ids import GroupIdx, enumerate_groups
from octavo.specs import KVCacheSpec

_MOST_PLACES_OF_HOLDER = 16
_MOST_PLACES = 1024
"""A publisher may name media and tiers as it likes; events of further ones are dropped. All together may name many
times as many, so that one that names ever others takes none from the rest."""
_MOST_SIZES_OF_HOLDER = 4
"""The most block sizes of a publisher in one group: that of the group, and those of chunks on its media."""
_MOST_BLOCKS = 1 << 25
"""The most blocks of a publisher, some GB here. It may have lost the removals, or never tell them. Beyond that it is
forgotten whole, as nobody can say which blocks it has no more."""

_Place: TypeAlias = tuple[str | None, str | None]
"""A medium and the tier that owns the blocks there."""
Media: TypeAlias = Collection[str | None] | Reach | None
"""The media that a question is about: these, all as near as this, or all."""

Sharing: TypeAlias = Mapping[str, Sequence[int]]
"""By medium: the holders of each store, as bits."""
NO_STORES: Mapping[str, str] = MappingProxyType({})
_NO_SHARING: Sharing = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Holder:
    """One publisher."""

    bit: int
    life: int
    """Another number whenever its blocks were forgotten. A bit comes back."""
    is_complete: bool
    """Whether all is known that the publisher holds, and everything could be applied that it told."""
    num_dropped_events: int = 0
    """Events that name no group of the plan, blocks that a prompt's hashes cannot name, or more than there is room
    for."""
    num_blocks_on: dict[str | None, int] = field(default_factory=dict)
    """By medium: the blocks of all groups that it told of and that are left."""
    has_slower_media: bool = False
    """Whether it told of blocks on another medium than the device."""
    places: set[_Place] = field(default_factory=set)
    """Where it told of blocks."""
    sizes: set[tuple[GroupIdx, int]] = field(default_factory=set)
    """By group: the block sizes that it told."""
    stores: Mapping[str, str] = field(default_factory=dict)
    """By medium: the name of a store. All holders that use a store have what any of them told of it."""
    stores_off: Collection[str] = ()
    """The media whose stores it cannot use now."""

    def count(self, medium: str | None, num_blocks: int) -> None:
        """More blocks, or fewer."""
        self.num_blocks_on[medium] = self.num_blocks_on.get(medium, 0) + num_blocks


class Expectation(NamedTuple):
    """Blocks that a holder is about to have."""

    life: int
    """The holder's when it was noted."""
    blocks: Mapping[GroupIdx, Sequence[ExternalHash]]


class HeldBlocks:
    """The blocks of all publishers with one plan."""

    def __init__(self, specs: Sequence[KVCacheSpec], *, hash_block_size: int, clears_all_media: bool = False) -> None:
        for spec in specs:
            if spec.block_size % hash_block_size:
                raise BlockSizeError(
                    f"block_size = {spec.block_size} of a group of kind {spec.kind} is not a multiple of the "
                    f"publisher's hash_block_size = {hash_block_size}"
                )
        self.specs = list(specs)
        self.hash_block_size = hash_block_size
        self._clears_all_media = clears_all_media
        self._places: dict[_Place, list[GroupBlocks]] = {}
        self._expected = self._new_tables()
        self._num_lives = 0
        self._all_bits = 0
        """The bits of the holders, and those that `_gone` waits to give back."""
        self._gone = 0
        """The bits of holders that are gone. Tables may still have them, so nobody else gets them yet."""
        self._sweep: Iterator[int] = iter(())

    @property
    def reaches(self) -> list[Reach]:
        """Where blocks are or were, the nearest first."""
        return sorted({Reach.DEVICE, *(reach_of(*place) for place in self._places)})

    @property
    def num_blocks(self) -> int:
        """Blocks of all groups and media that somebody holds, or held until lately."""
        return sum(
            len(holders) for groups in self._places.values() for group in groups for holders in group.by_size.values()
        )

    def add_holder(self, *, is_complete: bool = True, stores: Mapping[str, str] = NO_STORES) -> Holder:
        """A new publisher that holds nothing. If it is not new, what it held before is not known."""
        holder = Holder(0, 0, is_complete, stores=stores)
        self._begin_life(holder)
        return holder

    def remove_holder(self, holder: Holder) -> None:
        """The publisher is gone; nobody asks for the holder again, but who does already hears of nothing more."""
        self._give_back(holder.bit)
        holder.bit = 0

    def apply(self, holder: Holder, events: Iterable[AnyEvent]) -> None:
        """Takes one batch of events, in their order."""
        num_told = 0
        for event in events:
            match event:
                case AllBlocksCleared():
                    self._clear(holder)
                case BlockStored():
                    self._store(holder, event)
                    num_told += len(event.block_hashes)
                case BlockRemoved():
                    self._remove(holder, event)
        if sum(holder.num_blocks_on.values()) > _MOST_BLOCKS:
            self._drop(holder)
            self._forget(holder)
        if self._gone:
            self._sweep_some(2 * num_told)

    def take_over(self, holder: Holder, others: "HeldBlocks", other: Holder) -> None:
        """The holder has what another one of other publishers has, whose groups are the first ones here."""
        for (medium, ownership), groups in list(others._places.items()):  # noqa: SLF001 - of the same class
            for index, group in enumerate_groups(groups):
                own = self._on_place(holder, (medium, ownership)) if group.is_held_by(other.bit) else None
                if own is not None:
                    holder.count(medium, own[index].take_over(holder.bit, group, other.bit))
        holder.sizes |= other.sizes
        holder.num_dropped_events += other.num_dropped_events
        holder.has_slower_media = other.has_slower_media

    def expect(self, holder: Holder, blocks: Mapping[GroupIdx, Sequence[ExternalHash]]) -> "Expectation":
        """The holder is about to have these blocks of the groups' own sizes, as far as somebody else can tell."""
        for group_idx, hashes in blocks.items():
            group = self._expected[group_idx]
            group.store(hashes, block_size=group.block_size, holder=holder.bit, is_counted=True)
        return Expectation(holder.life, blocks)

    def expect_no_more(self, holder: Holder, expectation: "Expectation") -> None:
        """By now the holder has told of the blocks, or will not have them."""
        if expectation.life != holder.life:
            return  # it was forgotten with the holder's other blocks
        for group_idx, hashes in expectation.blocks.items():
            self._expected[group_idx].remove(hashes, holder=holder.bit)

    def resync(self, holder: Holder) -> None:
        """The publisher's state is unknown: forget blocks that it may have removed."""
        self._forget(holder)
        holder.is_complete = False

    def told_all(self, holder: Holder) -> None:
        """The publisher has told all that it holds, from its beginning or anew."""
        holder.is_complete = not holder.num_dropped_events

    def hashes(self, holder: Holder, group_idx: GroupIdx, medium: str | None) -> set[ExternalHash]:
        """A holder's blocks of a group on one medium; a chunk by its last hash if the publisher tells chunks."""
        return {
            block_hash
            for blocks in self._on_media(group_idx, [medium])
            for holders in blocks.by_size.values()
            for block_hash, bits in holders.items()
            if bits & holder.bit
        }

    def as_events(self, holder: Holder) -> list[BlockStored]:
        """What the holder has, as the events that would tell it."""
        return [event for event in self.look_for_events(holder) if event is not None]

    def look_for_events(self, holder: Holder) -> Iterator[BlockStored | None]:
        """The same a part at a time: some blocks of one medium, group and size. None where the holder has nothing of a
        part that was looked at. Between two parts, its blocks may come and go."""
        for place, groups in list(self._places.items()):
            for group_idx, group in enumerate_groups(groups):
                for block_size, part in group.parts():
                    hashes = group.held_by(holder.bit, block_size, part)
                    yield self._as_event(place, group_idx, block_size, hashes) if hashes else None

    def _as_event(self, place: _Place, group_idx: GroupIdx, block_size: int, hashes: list[ExternalHash]) -> BlockStored:
        medium, ownership = place
        return BlockStored(
            block_hashes=hashes,
            parent_block_hash=None,
            token_ids=[],
            block_size=block_size,
            lora_id=None,
            medium=medium,
            lora_name=None,
            group_idx=group_idx,
            kv_cache_spec_kind=self.specs[group_idx].kind,
            ownership=ownership,
        )

    def in_prompt(
        self,
        holder: Holder,
        group_idx: GroupIdx,
        hashes: Sequence[ExternalHash],
        *,
        media: Media,
    ) -> BlocksInPrompt:
        """A holder's blocks of a prompt, given the hashes of the prompt's hash blocks (or of its encoder's blocks)."""
        size = self._size_of_hashed(group_idx)
        return BlocksInPrompt(self._on_media(group_idx, media), hashes, hash_block_size=size, holder=holder.bit)

    def holders_in_prompt(
        self,
        group_idx: GroupIdx,
        hashes: Sequence[ExternalHash],
        *,
        media: Media = None,
        sharing: Sharing = _NO_SHARING,
    ) -> list[int]:
        """By block of a prompt: the bits of all its holders. Bits of holders that are gone may be among them. What one
        holder of a store told of it counts for all that share it."""
        size = self._size_of_hashed(group_idx)
        held = holders_in_prompt(self._on_media(group_idx, media), hashes, hash_block_size=size)
        for medium, stores in sharing.items():
            tables = self._on_media(group_idx, media, of_tier=medium)
            told = holders_in_prompt(tables, hashes, hash_block_size=size)
            for sharers in stores if any(told) else ():
                held = [own | sharers if bits & sharers else own for own, bits in zip(held, told, strict=True)]
        return held

    def _size_of_hashed(self, group_idx: GroupIdx) -> int:
        spec = self.specs[group_idx]
        return self.hash_block_size if spec.indexes_decoder_tokens else spec.block_size

    def _on_media(self, group_idx: GroupIdx, media: Media, *, of_tier: str | None = None) -> list[GroupBlocks]:
        """The tables of these media, or of one tier there. What is expected counts as on the device, unless media are
        asked for by name."""
        is_by_name = media is not None and not isinstance(media, Reach)
        told = [
            groups[group_idx]
            for (medium, ownership), groups in self._places.items()
            if (of_tier is None or of_tier == (ownership or medium)) and _is_among(medium, ownership, media)
        ]
        return told if is_by_name or of_tier is not None else [*told, self._expected[group_idx]]

    def _store(self, holder: Holder, event: BlockStored) -> None:
        group = self._group_of(holder, event)
        if group is None or event.group_idx is None:
            return
        if event.block_size == 0:  # maybe a chunk of an unknown size, whose last block is there at least
            holder.is_complete = False
        block_size = event.block_size or group.block_size
        is_whole = block_size % self._size_of_hashed(event.group_idx) == 0
        if not (is_whole and group.can_take(block_size) and _notes_size(holder, event.group_idx, block_size)):
            self._drop(holder)
            return
        is_counted = event.medium != MEDIUM_GPU and bool(event.token_ids)  # vLLM's self-describing form
        stored = group.store(event.block_hashes, block_size=block_size, holder=holder.bit, is_counted=is_counted)
        holder.count(event.medium, stored)

    def _remove(self, holder: Holder, event: BlockRemoved) -> None:
        group = self._group_of(holder, event)
        if group is not None:
            removed = group.remove(event.block_hashes, holder=holder.bit)
            holder.count(event.medium, -removed.num_blocks)
            holder.is_complete &= not removed.may_be_left

    def _group_of(self, holder: Holder, event: BlockStored | BlockRemoved) -> GroupBlocks | None:
        if event.group_idx is None or not 0 <= event.group_idx < len(self.specs):
            self._drop(holder)
            return None
        groups = self._on_place(holder, (event.medium, event.ownership))
        return None if groups is None else groups[event.group_idx]

    def _on_place(self, holder: Holder, place: _Place) -> list[GroupBlocks] | None:
        groups = self._places.get(place)
        if place not in holder.places or groups is None:
            is_one_more = place not in holder.places and len(holder.places) >= _MOST_PLACES_OF_HOLDER
            if is_one_more or (groups is None and len(self._places) >= _MOST_PLACES):
                self._drop(holder)
                return None
            holder.places.add(place)
            groups = self._places.setdefault(place, groups or self._new_tables())
        holder.has_slower_media |= place[0] != MEDIUM_GPU
        return groups

    def _new_tables(self) -> list[GroupBlocks]:
        """A publisher that clears all media tells all anew now and then, and never tells a copy."""
        return [GroupBlocks(spec.block_size, may_tell_copies=not self._clears_all_media) for spec in self.specs]

    def _clear(self, holder: Holder) -> None:
        """vLLM means its device only: then blocks of slower media are still there, and not known here any more."""
        self._forget(holder)
        if self._clears_all_media:
            holder.is_complete = True
        elif holder.has_slower_media:
            holder.is_complete = False

    def _drop(self, holder: Holder) -> None:
        holder.num_dropped_events += 1
        holder.is_complete = False

    def _forget(self, holder: Holder) -> None:
        """The holder goes on with another bit; the tables are swept of the old one little by little."""
        self._give_back(holder.bit)
        self._begin_life(holder)
        holder.num_blocks_on.clear()
        holder.places.clear()
        holder.sizes.clear()

    def _begin_life(self, holder: Holder) -> None:
        self._num_lives += 1
        holder.life = self._num_lives
        holder.bit = ~self._all_bits & (self._all_bits + 1)  # the lowest one that is free
        self._all_bits |= holder.bit

    def _give_back(self, bit: int) -> None:
        if self._all_bits == bit:  # the only holder, so every block is its own
            self._places.clear()
            self._expected = self._new_tables()
            self._all_bits = 0
        else:
            self._gone |= bit

    def _sweep_some(self, fewest: int) -> None:
        """Each batch of events pays for a part of the sweep: for more blocks than it told, or what is gone would pile
        up where holders come and go that tell much at once."""
        left = fewest
        for num_blocks in self._sweep:
            left -= num_blocks
            if left <= 0:
                return
        self._sweep = self._sweep_all(self._gone)

    def _sweep_all(self, gone: int) -> Iterator[int]:
        for groups in [*self._places.values(), self._expected]:
            for group in groups:
                yield from group.sweep(gone)
        self._gone &= ~gone
        self._all_bits &= ~gone
        self._places = {place: groups for place, groups in self._places.items() if _shed(groups)}


def _notes_size(holder: Holder, group_idx: GroupIdx, block_size: int) -> bool:
    """Notes a block size that the holder tells; False if it has told too many others of the group."""
    if (group_idx, block_size) not in holder.sizes:
        if sum(group == group_idx for group, _ in holder.sizes) >= _MOST_SIZES_OF_HOLDER:
            return False
        holder.sizes.add((group_idx, block_size))
    return True


def _shed(groups: Sequence[GroupBlocks]) -> bool:
    """Makes room for other block sizes. Whether anybody has a block in one of the groups."""
    for group in groups:
        group.shed()
    return any(holders for group in groups for holders in group.by_size.values())


def _is_among(medium: str | None, ownership: str | None, media: Media) -> bool:
    if media is None:
        return True
    return reach_of(medium, ownership) <= media if isinstance(media, Reach) else medium in media
