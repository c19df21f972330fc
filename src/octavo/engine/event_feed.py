"""`EventFeed`: hands the changes of the prefix cache, on the device and below it, to a publisher after each step."""

import logging
import time
from collections.abc import Callable

from octavo.blocks import KVCacheManager
from octavo.errors import InputError
from octavo.events import (
    MEDIUM_GPU,
    AllBlocksCleared,
    AnyEvent,
    EventPublisher,
    EventSource,
    KVEventBatch,
    PublishedPlan,
)
from octavo.ids import enumerate_groups
from octavo.planning import KVCacheConfig

_logger = logging.getLogger(__name__)

HEARTBEAT_S = 10.0
"""A batch with the plan is published first and then at this interval. It tells an idle engine from a dead one."""


def published_plan(config: KVCacheConfig) -> PublishedPlan:
    """The plan as routers get it. Raises InputError for a group whose resume rule cannot be published."""
    return PublishedPlan.of_specs(
        [group.spec for group in config.groups],
        hash_block_size=config.hash_block_size,
        draft_groups=[index for index, group in enumerate_groups(config.groups) if group.is_draft],
        clears_all_media=True,
        heartbeat_s=HEARTBEAT_S,
    )


class EventFeed:
    """Publishes the changes of a manager that was made with `enable_events`."""

    def __init__(
        self, manager: KVCacheManager, publisher: EventPublisher, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._manager = manager
        self._publisher = publisher
        self._clock = clock
        self._take_more: Callable[[], list[AnyEvent]] = list
        self._next_heartbeat = float("-inf")
        try:
            self._plan: PublishedPlan | None = published_plan(manager.config)
        except InputError as error:
            _logger.warning("events are published without a plan: %s", error)
            self._plan = None
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
        """Publishes the events of this source too: the changes on media below the device."""
        self._take_more = take_events

    def publish(self) -> None:
        """Publishes the plan when it is due, then one batch with all changes since the last one, if there are any."""
        now = self._clock()
        if not now < self._next_heartbeat <= now + HEARTBEAT_S:  # the clock may jump
            self._next_heartbeat = now + HEARTBEAT_S
            self._publisher.publish(KVEventBatch(ts=now, events=[], plan=self._plan))
        below = self._take_more()  # first: a reset of the media below resets the device too
        events = below + self._source.messages(self._manager.take_changes())
        cleared = [event for event in events if isinstance(event, AllBlocksCleared)]
        if len(cleared) > 1:  # one reset: a second event would also clear what was stored below since the first
            events = [cleared[0], *(event for event in events if not isinstance(event, AllBlocksCleared))]
        if events:
            self._publisher.publish(KVEventBatch(ts=now, events=events))

    def close(self) -> None:
        self._publisher.close()
