"""`KnownChunks`: the chunks that a tier knows to be in a shared store. The store may have more."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from octavo.chunks import ChangeLog, OffloadKey, TierChanges
from octavo.stores.client import HeldChunk

MOST_KNOWN = 1 << 18
_KEYS_TOLD_PER_CALL = 512
"""Keys that one call announces, and that one tells as gone after `clear`."""


class KnownChunks:
    """Chunks that were found or stored. The least recently used one is forgotten for a new one."""

    def __init__(self) -> None:
        self._held: OrderedDict[OffloadKey, HeldChunk] = OrderedDict()
        """The most recently used one is last. A `dict` finds its first key slowly once many before it have gone."""
        self._removed: OrderedDict[OffloadKey, None] = OrderedDict()
        """Chunks that this engine must not find, though the store has them for others. The oldest is dropped."""
        self._changes = ChangeLog()
        self._untold: list[OffloadKey] = []
        """Chunks that are still to be announced, if they are known by then."""
        self._forgotten: list[OrderedDict[OffloadKey, HeldChunk]] = []
        """Chunks that `clear` forgot and that are not told as gone yet."""

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: OffloadKey) -> HeldChunk | None:
        return self._held.get(key)

    def masks(self, keys: Sequence[OffloadKey]) -> list[int]:
        return [held.held_blocks if (held := self._held.get(key)) else 0 for key in keys]

    def sizes(self, keys: Sequence[OffloadKey]) -> list[int]:
        return [held.num_bytes if (held := self._held.get(key)) else 0 for key in keys]

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        for key in keys:
            if key in self._held:
                self._held.move_to_end(key)

    def found(self, key: OffloadKey, held: HeldChunk) -> None:
        """Notes that the store has these; a chunk that was stored here since is newer."""
        if key not in self._removed and key not in self._held:
            self._add(key, held)

    def stored(self, key: OffloadKey, held: HeldChunk) -> None:
        self._removed.pop(key, None)
        former = self._held.pop(key, None)
        if former is not None and former.held_blocks != held.held_blocks:
            self._changes.replaced([key])
        if former is None:
            self._add(key, held)
        else:
            self._held[key] = held

    def is_replaced_by(self, key: OffloadKey, held_blocks: int) -> bool:
        """Whether the store may have the key with other blocks, or damaged, so that it must be stored again."""
        held = self._held.get(key)
        return key in self._removed or (held is not None and held.held_blocks != held_blocks)

    def gone(self, keys: Iterable[OffloadKey]) -> None:
        """Notes that the store lacks these, or has them damaged."""
        self._changes.removed([key for key in keys if self._held.pop(key, None) is not None])

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        """Makes these not found, as they are unwanted or damaged, until they are stored here again."""
        self.gone(keys)
        self._removed.update(dict.fromkeys(keys))
        while len(self._removed) > MOST_KNOWN:
            self._removed.popitem(last=False)

    def clear(self) -> None:
        if self._held:
            self._forgotten.append(self._held)
            self._held = OrderedDict()
        self._removed.clear()

    def announce(self) -> None:
        """Tells all chunks anew, a portion with each `take_changes`, together with the other changes."""
        self._untold = list(self._held)
        self._changes.is_announcing = True

    def take_changes(self) -> TierChanges:
        self._changes.removed(self._take_forgotten())
        portion = self._untold[-_KEYS_TOLD_PER_CALL:]
        del self._untold[-_KEYS_TOLD_PER_CALL:]
        self._changes.stored([key for key in portion if key in self._held])
        self._changes.is_announcing = bool(self._untold)
        return self._changes.take()[0]._replace(has_more=bool(self._untold or self._forgotten))

    def _take_forgotten(self) -> list[OffloadKey]:
        keys: list[OffloadKey] = []
        while self._forgotten and len(keys) < _KEYS_TOLD_PER_CALL:
            if self._forgotten[0]:
                keys.append(self._forgotten[0].popitem()[0])
            else:
                del self._forgotten[0]
        return keys

    def _add(self, key: OffloadKey, held: HeldChunk) -> None:
        self._held[key] = held
        was_told = any(former.pop(key, None) is not None for former in self._forgotten)
        (self._changes.replaced if was_told else self._changes.stored)([key])
        if len(self._held) > MOST_KNOWN:
            self.gone([next(iter(self._held))])
