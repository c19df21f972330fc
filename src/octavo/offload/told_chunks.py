"""`ToldChunks`: what the followers of a tier's changes are told that it has: nothing, while it is off.

    all is told --the tier is off--> part after part is told as gone --> nothing is told
                <--part after part is told as there-- the tier is on

A part has the chunks whose keys begin with the same byte. The parts before `_num_hidden` are told as gone: what comes
and goes there is noted, and not passed on.
"""

from collections.abc import Callable, Sequence
from itertools import islice

from octavo.chunks import OffloadKey, TierChanges

_NUM_PARTS = 256
_KEYS_PER_CALL = 2048
"""A call that has told this many chunks as gone, or as there again, stops after the present part."""
_LOOKED_FOR_PER_CALL = 256
"""The chunks that one call looks for again."""


class ToldChunks:
    """The chunks that a tier has by its changes."""

    def __init__(self) -> None:
        self._parts: list[dict[OffloadKey, None]] = [{} for _ in range(_NUM_PARTS)]
        """Dictionaries, which the garbage collector does not look into, unlike sets."""
        self._num_hidden = 0
        self._unfound: dict[OffloadKey, None] = {}
        """Chunks in the other parts that are told as gone, since a lookup did not find them: a disk was moving them, or
        was off by then. They are looked for again."""

    def clear(self) -> None:
        """The tier has nothing any more, and the followers know it."""
        self._parts = [{} for _ in range(_NUM_PARTS)]
        self._unfound.clear()

    def is_hidden(self, key: OffloadKey) -> bool:
        """Whether the followers are to believe that the tier lacks this chunk, whatever it has."""
        return key[0] < self._num_hidden

    def told_masks(self, keys: Sequence[OffloadKey], masks: Sequence[int]) -> list[int]:
        """What the followers are told now that the tier has of these chunks, given what a lookup found."""
        if self._num_hidden:
            masks = [0 if self.is_hidden(key) else mask for key, mask in zip(keys, masks, strict=True)]
        missing = [key for key, mask in zip(keys, masks, strict=True) if not mask]
        self._unfound.update((key, None) for key in missing if self._is_known(key))
        return list(masks)

    def pass_on(
        self, changes: TierChanges, lookup: Callable[[Sequence[OffloadKey]], list[int]], *, is_off: bool
    ) -> TierChanges:
        """What the followers are told of these changes, and of the next parts of a tier that is off, or on again."""
        removed = self._hide() if is_off else []
        removed += [key for key in changes.removed if self._forget(key)]
        again = [key for key in changes.stored if self._is_known(key)]
        for key in changes.stored:
            self._parts[key[0]][key] = None
        changed, stored = self._visible(changes.changed), self._visible(changes.stored)
        if not is_off:
            stored += self._show()
        unfound = self._note_unfound([*changed, *stored], lookup)
        if unfound:
            removed += [key for key in (*changed, *again) if key in unfound]
            changed, stored = ([key for key in keys if key not in unfound] for keys in (changed, stored))
        is_moving = self._num_hidden < _NUM_PARTS if is_off else self._num_hidden > 0
        return TierChanges(removed, stored, changed, changes.has_more or is_moving)

    def _visible(self, keys: Sequence[OffloadKey]) -> list[OffloadKey]:
        return [key for key in keys if not self.is_hidden(key)] if self._num_hidden else list(keys)

    def _is_known(self, key: OffloadKey) -> bool:
        """Whether the followers know of the chunk."""
        return key in self._parts[key[0]] and key not in self._unfound and not self.is_hidden(key)

    def _forget(self, key: OffloadKey) -> bool:
        """Forgets a chunk. Whether the followers knew of it."""
        was_there = self._parts[key[0]].pop(key, self) is None
        return self._unfound.pop(key, self) is self and was_there and not self.is_hidden(key)

    def _hide(self) -> list[OffloadKey]:
        """The chunks of the next parts that the followers know of. They know of none there from now on."""
        keys: list[OffloadKey] = []
        while self._num_hidden < _NUM_PARTS and len(keys) < _KEYS_PER_CALL:
            keys += self._parts[self._num_hidden]
            self._num_hidden += 1
        return [key for key in keys if self._unfound.pop(key, self) is self] if self._unfound else keys

    def _show(self) -> list[OffloadKey]:
        """The chunks of the next parts, and some that were not found. The followers are to know of them."""
        keys = list(islice(self._unfound, _LOOKED_FOR_PER_CALL))
        while self._num_hidden > 0 and len(keys) < _KEYS_PER_CALL:
            self._num_hidden -= 1
            keys += self._parts[self._num_hidden]
        return keys

    def _note_unfound(
        self, keys: Sequence[OffloadKey], lookup: Callable[[Sequence[OffloadKey]], list[int]]
    ) -> set[OffloadKey]:
        unfound = {key for key, mask in zip(keys, lookup(keys), strict=True) if not mask} if keys else set()
        if self._unfound:
            for key in keys:
                self._unfound.pop(key, None)
        self._unfound.update(dict.fromkeys(unfound))
        return unfound
