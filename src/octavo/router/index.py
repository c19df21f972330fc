"""`FleetIndex`: the blocks of all engines with one plan, and how far each of them could resume a prompt.

It is plain data without sockets or clocks. Events go in by engine; the resume rule of `octavo.specs` answers for all
engines at once.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from octavo.errors import InputError
from octavo.events import (
    NO_STORES,
    AnyEvent,
    BlockStored,
    Expectation,
    ExternalHash,
    HeldBlocks,
    Holder,
    Media,
    PublishedPlan,
    Reach,
    Sharing,
)
from octavo.hashing import hashes_for_block_size
from octavo.ids import GroupIdx, enumerate_groups
from octavo.specs import (
    GroupHolders,
    KVCacheSpec,
    ResumePoint,
    last_boundary,
    longest_resumes,
    resume_granularity,
)

Points: TypeAlias = tuple[int, int, int, int]
"""How much of a prompt an engine could resume, by `Reach`: from its device, with its memory, and so on."""


class Found(NamedTuple):
    """How much of a prompt each engine could resume."""

    resumes: Mapping[str, int]
    """From all media."""
    branches: Mapping[str, int]
    """If recurrent state were everywhere."""
    loads: Mapping[str, Points]
    """Of engines that have a part of it on slower media only."""


class FleetIndex:
    """Engines by name. A name is a worker, or one data-parallel rank of it."""

    def __init__(
        self,
        specs: Sequence[KVCacheSpec],
        *,
        hash_block_size: int,
        draft_groups: Collection[int] = (),
        clears_all_media: bool = False,
    ) -> None:
        self._blocks = HeldBlocks(specs, hash_block_size=hash_block_size, clears_all_media=clears_all_media)
        self._draft_groups = frozenset(draft_groups)
        self._engines: dict[str, Holder] = {}
        self._silent: set[str] = set()

    @classmethod
    def of_plan(cls, plan: PublishedPlan) -> "FleetIndex":
        """An index of engines that told this plan."""
        return cls(
            plan.specs,
            hash_block_size=plan.hash_block_size,
            draft_groups=plan.draft_groups,
            clears_all_media=plan.clears_all_media,
        )

    @property
    def engines(self) -> tuple[str, ...]:
        return tuple(self._engines)

    @property
    def has_checkpoints(self) -> bool:
        """Whether `needs_checkpoints` makes a difference."""
        return any(spec.holds_checkpoints for spec in self._blocks.specs)

    @property
    def num_blocks(self) -> int:
        """Blocks of all groups and media; one that several engines hold on one medium counts once."""
        return self._blocks.num_blocks

    def num_blocks_of(self, name: str) -> int:
        """Blocks of all groups and media that the engine told of."""
        return sum(self._engines[name].num_blocks_on.values())

    def num_blocks_on(self, name: str) -> dict[str, int]:
        """The number of blocks on each medium; the medium is empty if the engine named none."""
        return {medium or "": count for medium, count in self._engines[name].num_blocks_on.items() if count}

    def add_engine(self, name: str, *, is_complete: bool = True, stores: Mapping[str, str] = NO_STORES) -> None:
        """Adds an engine that holds nothing yet. With `is_complete` False it may hold blocks that were never told
        here. `stores`: by medium, the name of what it shares with other engines; what one of them tells of it counts
        for all."""
        if name in self._engines:
            raise InputError(f"engine {name!r} is there already: remove it first")
        self._engines[name] = self._blocks.add_holder(is_complete=is_complete, stores=stores)

    def remove_engine(self, name: str) -> None:
        self._silent.discard(name)
        self._blocks.remove_holder(self._engines.pop(name))

    def move_engine(self, name: str, to: "FleetIndex") -> None:
        """The engine's plan has grown: moves its blocks to the index of a plan that begins with the groups of this
        one."""
        holder = self._engines[name]
        to.add_engine(name, is_complete=holder.is_complete, stores=holder.stores)
        to.note_stores_off(name, holder.stores_off)
        to._blocks.take_over(to._engines[name], self._blocks, holder)  # noqa: SLF001 - of the same class
        if name in self._silent:
            to.silence(name)
        self.remove_engine(name)

    def apply(self, name: str, events: Iterable[AnyEvent]) -> None:
        """Takes one batch of an engine's events, which ends its silence."""
        self._silent.discard(name)
        self._blocks.apply(self._engines[name], events)

    def note_stores_off(self, name: str, media: Collection[str]) -> None:
        """The engine can use its stores on all media but these, so what others told of them does not count for it."""
        self._engines[name].stores_off = media

    def resync(self, name: str) -> None:
        """The engine's blocks are unknown: forget those that it may have removed."""
        self._silent.discard(name)
        self._blocks.resync(self._engines[name])

    def told_all(self, name: str) -> None:
        """The engine has told all that it holds, whatever was missed before."""
        self._blocks.told_all(self._engines[name])

    def silence(self, name: str) -> None:
        """The state of the engine is unknown: its blocks do not count until it tells of itself."""
        self._silent.add(name)

    def restart(self, name: str) -> None:
        """The engine began anew: it holds nothing until it says so."""
        stores = self._engines[name].stores
        self.remove_engine(name)
        self.add_engine(name, stores=stores)

    def expect(self, name: str, hashes: Sequence[ExternalHash], num_tokens: int) -> Expectation:
        """A prompt was sent to the engine, which will soon have its blocks: those of attention all along, and a
        checkpoint at the prompt's last boundary. `resumes` counts them until `expect_no_more`."""
        return self._blocks.expect(self._engines[name], self._blocks_of(hashes, num_tokens))

    def expect_no_more(self, name: str, expectation: Expectation) -> None:
        """The engine has answered the prompt, or will not. Nothing happens for an engine that has left."""
        if name in self._engines:
            self._blocks.expect_no_more(self._engines[name], expectation)

    def is_complete(self, name: str) -> bool:
        """Whether everything that the engine holds is known. If not, it may resume more or less than `resumes` says."""
        return self._engines[name].is_complete and name not in self._silent

    def num_dropped_events(self, name: str) -> int:
        return self._engines[name].num_dropped_events

    def resumes(
        self,
        hashes: Sequence[ExternalHash],
        num_tokens: int,
        *,
        media: Media = None,
        engines: Iterable[str] | None = None,
        encoder_hashes: Sequence[ExternalHash] = (),
        num_encoder_tokens: int = 0,
        needs_checkpoints: bool = True,
    ) -> dict[str, int]:
        """By engine: how many tokens of a prompt it could resume, given the hashes of the prompt's hash blocks.

        `media` limits the question to blocks on some media, `engines` to some engines. An engine that can resume
        nothing is left out. Without `needs_checkpoints`, recurrent state is taken to be there: an engine that has the
        attention of a prefix makes a checkpoint at its end when the next request shares it.
        """
        asked = self._audible(engines)
        groups = self._groups(hashes, encoder_hashes, media)
        if not needs_checkpoints:
            groups = _without_checkpoints(groups)
        return _resumes(groups, ResumePoint(num_tokens, num_tokens, num_encoder_tokens), asked)

    def read(self, hashes: Sequence[ExternalHash], num_tokens: int) -> Found:
        """`resumes` with and without `needs_checkpoints`, from one look-up of the blocks' holders; and of engines that
        would have to load, how far they come with what is near."""
        groups, request, engines = (
            self._groups(hashes, (), None),
            ResumePoint(num_tokens, num_tokens),
            self._audible(),
        )
        resumes = _resumes(groups, request, engines)
        branches = resumes if not self.has_checkpoints else _resumes(_without_checkpoints(groups), request, engines)
        return Found(resumes, branches, self._find_loads(hashes, groups, request, resumes))

    def _find_loads(
        self,
        hashes: Sequence[ExternalHash],
        groups: Sequence[GroupHolders],
        request: ResumePoint,
        resumes: Mapping[str, int],
    ) -> dict[str, Points]:
        """The blocks are looked up for each reach that any engine told of, and resume points only if that finds more
        than the reach before."""
        engines = self._engines
        loading = self._audible(name for name in resumes if engines[name].has_slower_media or engines[name].stores)
        if not loading:
            return {}
        points: list[Mapping[str, int]] = [resumes] * len(Reach)
        found, farther = resumes, groups
        *near, end = self._blocks.reaches
        for reach in reversed(near):
            held = self._groups(hashes, (), reach)
            if any(own.holders != far.holders for own, far in zip(held, farther, strict=True)):
                found = _resumes(held, request, loading)
            points[reach:end] = [found] * (end - reach)
            farther, end = held, reach
        device, memory, local, everywhere = points
        return {
            name: (device.get(name, 0), memory.get(name, 0), local.get(name, 0), everywhere[name])
            for name in loading.values()
            if device.get(name, 0) < everywhere[name]
        }

    def _audible(self, names: Iterable[str] | None = None) -> dict[int, str]:
        """The engines of the given set, or of all, that are not silent, by the lengths of their bits."""
        names = self._engines if names is None else names
        return {self._engines[name].bit.bit_length(): name for name in names if name not in self._silent}

    def _groups(
        self,
        hashes: Sequence[ExternalHash],
        encoder_hashes: Sequence[ExternalHash],
        media: Media,
    ) -> list[GroupHolders]:
        sharing = self._sharing()
        return [
            GroupHolders(
                spec=spec,
                holders=self._blocks.holders_in_prompt(
                    index, hashes if spec.indexes_decoder_tokens else encoder_hashes, media=media, sharing=sharing
                ),
                is_draft=index in self._draft_groups,
            )
            for index, spec in enumerate_groups(self._blocks.specs)
        ]

    def _sharing(self) -> Sharing:
        stores: dict[tuple[str, str], int] = {}
        for holder in self._engines.values():
            for store in holder.stores.items():
                if store[0] not in holder.stores_off:
                    stores[store] = stores.get(store, 0) | holder.bit
        sharing: dict[str, list[int]] = {}
        for (medium, _), holders in stores.items():
            if holders & (holders - 1):  # more than one
                sharing.setdefault(medium, []).append(holders)
        return sharing

    def as_events(self, name: str) -> list[BlockStored]:
        """What the engine holds, as the events that would tell it."""
        return self._blocks.as_events(self._engines[name])

    def look_for_events(self, name: str) -> Iterator[BlockStored | None]:
        """The same a part at a time: None where the engine has nothing of a part that was looked at. Between two parts,
        anything may happen to it."""
        return self._blocks.look_for_events(self._engines[name])

    def _blocks_of(self, hashes: Sequence[ExternalHash], num_tokens: int) -> dict[GroupIdx, Sequence[ExternalHash]]:
        specs = self._blocks.specs
        granularity = resume_granularity(specs)
        end = last_boundary(num_tokens, granularity, has_draft=bool(self._draft_groups))
        blocks: dict[GroupIdx, Sequence[ExternalHash]] = {}
        for index, spec in enumerate_groups(specs):
            if spec.indexes_decoder_tokens:
                own = hashes_for_block_size(hashes, self._blocks.hash_block_size, spec.block_size)
                at_end = own[: end // spec.block_size][-1:]
                blocks[index] = at_end if spec.holds_checkpoints else own
        return blocks


def _without_checkpoints(groups: Sequence[GroupHolders]) -> list[GroupHolders]:
    return [group for group in groups if not group.spec.holds_checkpoints]


def _resumes(groups: Sequence[GroupHolders], request: ResumePoint, engines: Mapping[int, str]) -> dict[str, int]:
    """By the name of an engine; `engines` are given by the lengths of their bits."""
    resumes: dict[str, int] = {}
    for tokens, holders in longest_resumes(groups, request, sum(1 << length - 1 for length in engines)):
        left = holders if tokens else 0
        while left:  # as numbers of bits, which are quicker to look up than bits as long as the fleet
            number = left.bit_length()
            resumes[engines[number]] = tokens
            left ^= 1 << number - 1
    return resumes
