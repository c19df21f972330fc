"""What came to a medium and went from it, as data: the net effect, removals before stores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import or_
from typing import NamedTuple

from octavo.chunks.keys import OffloadKey
from octavo.chunks.wanted import ALL_BLOCKS


class TierChanges(NamedTuple):
    """What came and went since the last call: removals before stores, net."""

    removed: list[OffloadKey]
    stored: list[OffloadKey]
    changed: Sequence[OffloadKey] = ()
    """There before and after, but not all the time: perhaps with other blocks."""
    has_more: bool = False
    """The next call tells more, whatever happens: an announcement goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediumChanges:
    """What changed on one medium since the last time."""

    medium: str
    removed: Sequence[OffloadKey]
    stored: Sequence[OffloadKey]
    """Chunks that are there with all their blocks. Those that have only some now count as removed."""
    held: Mapping[OffloadKey, int]
    """For each chunk that has changed, the blocks that the medium has of it now: 0b101 is the first and the third."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadChanges:
    """What changed on all media since the last time."""

    was_cleared: bool
    """Everything went from every medium before the rest happened."""
    media: tuple[MediumChanges, ...]


class MediumPlace(NamedTuple):
    """One of the places that a medium has: what changed there, and what is there."""

    changes: TierChanges
    masks_of: Callable[[Sequence[OffloadKey]], list[int]]


def changes_of_media(media: Sequence[str], places: Sequence[MediumPlace]) -> tuple[MediumChanges, ...]:
    """What changed on each medium. `media`: the medium of each place; two places may be of one."""
    by_medium: dict[str, list[MediumPlace]] = {}
    for medium, place in zip(media, places, strict=True):
        by_medium.setdefault(medium, []).append(place)
    return tuple(_changes_of_medium(medium, its_places) for medium, its_places in by_medium.items())


def _changes_of_medium(medium: str, places: Sequence[MediumPlace]) -> MediumChanges:
    """A chunk is on a medium while any place there has all of its blocks; a block, while any place there has it."""
    touched = dict.fromkeys(chain.from_iterable(keys for changes, _ in places for keys in changes[:3]))
    keys = list(touched)
    masks = [masks_of(keys) for _, masks_of in places]
    held = masks[0] if len(masks) == 1 else [reduce(or_, of_key) for of_key in zip(*masks, strict=True)]
    stored = {key for changes, _ in places for key in changes.stored}
    return MediumChanges(
        medium=medium,
        removed=[key for key, mask in zip(keys, held, strict=True) if mask != ALL_BLOCKS],
        stored=[key for key, mask in zip(keys, held, strict=True) if mask == ALL_BLOCKS and key in stored],
        held=dict(zip(keys, held, strict=True)),
    )


class ChangeLog:
    """The net effect of what happens until it is taken. It is taken once per step, which bounds it."""

    def __init__(self) -> None:
        self._removed: dict[OffloadKey, None] = {}
        self._stored: dict[OffloadKey, None] = {}
        self._changed: dict[OffloadKey, None] = {}
        self._was_cleared = False
        self.is_announcing = False
        """Whether all chunks are being told anew: some know nothing of a chunk that goes and comes back, so it is told
        as stored too. The log's owner sets it."""

    def stored(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            if key in self._removed:
                del self._removed[key]
                self._changed[key] = None
                if not self.is_announcing:
                    continue
            self._stored[key] = None

    def replaced(self, keys: Sequence[OffloadKey]) -> None:
        """These are there with other blocks than before: that is a change too."""
        for key in keys:
            if key not in self._stored:
                self._stored[key] = self._changed[key] = None

    def removed(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            was_told = key in self._changed or key not in self._stored
            self._stored.pop(key, None)
            self._changed.pop(key, None)
            if was_told:
                self._removed[key] = None

    def cleared(self) -> None:
        self._removed, self._stored, self._changed, self._was_cleared = {}, {}, {}, True

    def take(self) -> tuple[TierChanges, bool]:
        """The changes, and whether all was cleared before them."""
        changes = TierChanges(list(self._removed), list(self._stored), list(self._changed))
        was_cleared = self._was_cleared
        self._removed, self._stored, self._changed, self._was_cleared = {}, {}, {}, False
        return changes, was_cleared
