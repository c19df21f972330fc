"""`Telling`: an engine tells all that it holds anew, before replay forgets when it was told.

    messages    ... [told all] . . . changes . . . [tells all anew] . . .
                    |<--- half of what is kept --->|

So replay has a whole telling at any time, unless that is larger than what replay keeps. A subscriber that asks late
learns all, too.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from octavo.blocks import KVCacheManager
from octavo.events import AnyEvent, BlockStored, EventPublisher, EventSource
from octavo.ids import enumerate_groups

_SHARE_OF_CHANGES = 1 / 2
"""Of what is kept for replay: how much is published before all is told anew."""
_SHARE_OF_TELLING = 1 / 4
"""Of what is kept for replay: how much a telling may take."""
_BYTES_PER_BLOCK = 12
"""A hash of 64 bits and its share of what is around it."""
_BLOCKS_PER_STEP = 2048


class MediaBelow(Protocol):
    """What is cached below the device, as it is told."""

    def take_events(self) -> list[AnyEvent]:
        """The changes since the last call."""

    def tell_all(self) -> None:
        """Tells all anew, a portion with each `take_events`."""

    @property
    def is_telling(self) -> bool:
        """Whether the next `take_events` goes on with that."""

    @property
    def stores_off(self) -> list[str]:
        """The media whose shared stores cannot be used now."""

    @property
    def num_told_blocks(self) -> int:
        """At most this many blocks are told by `tell_all`."""


class Telling:
    """One engine's tellings, a portion in each step: what is on the device, then what is below."""

    def __init__(self, manager: KVCacheManager, source: EventSource, publisher: EventPublisher) -> None:
        self._pool, self._source, self._publisher = manager.pool, source, publisher
        self.below: MediaBelow | None = None
        self._began = publisher.published
        """When the last telling began or was found too long. An engine is empty at its start, so that all is told."""
        self._portions: Iterator[list[AnyEvent]] | None = None
        self._is_exact = True
        """Whether all blocks have been named so far."""

    @property
    def is_under_way(self) -> bool:
        return self._portions is not None

    def begin_if_due(self) -> None:
        """Begins if half of what replay keeps was published since the last time, and all fits in it."""
        published, bounds, began = self._publisher.published, self._publisher.replay_bounds, self._began
        if self.is_under_way or not min(bounds):
            return
        if (
            published.batches - began.batches >= bounds.batches * _SHARE_OF_CHANGES
            or published.num_bytes - began.num_bytes >= bounds.num_bytes * _SHARE_OF_CHANGES
        ):
            self._began = published
            if self._num_blocks() * _BYTES_PER_BLOCK <= bounds.num_bytes * _SHARE_OF_TELLING:
                self._portions, self._is_exact = self._tell(), True

    def step(self, from_below: Sequence[AnyEvent]) -> tuple[list[AnyEvent], int | None]:
        """What is told anew of the device in a step that tells this of the media below. If the telling ends with it,
        also the message from which on all was told that is there."""
        if self._portions is None:
            return [], None
        self._is_exact &= all(event.block_size for event in from_below if isinstance(event, BlockStored))
        portion = next(self._portions, None)
        if portion is not None:
            return portion, None
        self._portions = None
        return [], self._began.batches if self._is_exact else None

    def _num_blocks(self) -> int:
        on_device = sum(map(len, self._pool.indexes))
        return on_device if self.below is None else on_device + self.below.num_told_blocks

    def _tell(self) -> Iterator[list[AnyEvent]]:
        for group_idx, index in enumerate_groups(self._pool.indexes):
            hashes = list(index)
            for start in range(0, len(hashes), _BLOCKS_PER_STEP):
                there = self._pool.indexes[group_idx]  # another one after a reset
                kept = [block_hash for block_hash in hashes[start : start + _BLOCKS_PER_STEP] if block_hash in there]
                yield [self._source.held(group_idx, kept)] if kept else []
        if self.below is not None:
            self.below.tell_all()
            yield []  # the next step takes the first of it
            while self.below.is_telling:
                yield []
