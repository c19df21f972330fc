"""`EventFeed`: what changed in the prefix cache, on the device and below it, handed to a publisher step by step."""

import time
from collections.abc import Callable

from octavo.blocks import KVCacheManager
from octavo.events import MEDIUM_GPU, AllBlocksCleared, AnyEvent, EventPublisher, EventSource, KVEventBatch


class EventFeed:
    """A manager that was made with `enable_events`, and who is told of its changes."""

    def __init__(
        self, manager: KVCacheManager, publisher: EventPublisher, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._manager = manager
        self._publisher = publisher
        self._clock = clock
        self._take_more: Callable[[], list[AnyEvent]] = list
        self._source = EventSource(
            [group.spec for group in manager.config.groups],
            medium=MEDIUM_GPU,
            hash_block_size=manager.config.hash_block_size,
        )

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints of live events and of their replay; none for subscribers in this process."""
        return self._publisher.endpoints

    def follow(self, take_events: Callable[[], list[AnyEvent]]) -> None:
        """Publishes what this gives too: the changes of the media below the device."""
        self._take_more = take_events

    def publish(self) -> None:
        """One batch with all that changed since the last one; none where nothing did."""
        below = self._take_more()  # first: what is cleared there is cleared everywhere
        events = below + self._source.messages(self._manager.take_changes())
        cleared = [event for event in events if isinstance(event, AllBlocksCleared)]
        if len(cleared) > 1:  # one reset: a second word of it would take back what was stored below since the first
            events = [cleared[0], *(event for event in events if not isinstance(event, AllBlocksCleared))]
        if events:
            self._publisher.publish(KVEventBatch(ts=self._clock(), events=events))

    def close(self) -> None:
        self._publisher.close()
