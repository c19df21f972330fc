"""`EventFeed`: hands the changes of the prefix cache, on the device and below it, to a publisher after each step."""

import logging
import time
from collections.abc import Callable

import msgspec

from octavo.blocks import KVCacheManager
from octavo.engine.telling import MediaBelow, Telling
from octavo.errors import InputError
from octavo.events import (
    MEDIUM_GPU,
    AllBlocksCleared,
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
        self._telling = Telling(manager, self._source, publisher)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints of live events and of their replay; none for subscribers in this process."""
        return self._publisher.endpoints

    def follow(self, below: MediaBelow) -> None:
        """Publishes the changes on media below the device too."""
        self._telling.below = below

    @property
    def is_telling(self) -> bool:
        """Whether the next `publish` goes on to tell all anew."""
        return self._telling.is_under_way

    def publish(self) -> None:
        """Publishes the plan when it is due or another one, then one batch with all changes since the last one, if any.
        Now and then it also tells all anew, a portion with each batch."""
        now, media = self._clock(), self._telling.below
        has_changed = self._note_stores(media)
        if has_changed or not now < self._next_heartbeat <= now + HEARTBEAT_S:  # the clock may jump
            self._next_heartbeat = now + HEARTBEAT_S
            self._publisher.publish(KVEventBatch(ts=now, events=[], plan=self._plan))
        self._telling.begin_if_due()
        below = [] if media is None else media.take_events()  # first: a reset of these media resets the device too
        events = below + self._source.messages(self._manager.take_changes())
        told_anew, whole_since = self._telling.step(below)
        events += told_anew
        cleared = [event for event in events if isinstance(event, AllBlocksCleared)]
        if len(cleared) > 1:  # one reset: a second event would also clear what was stored below since the first
            events = [cleared[0], *(event for event in events if not isinstance(event, AllBlocksCleared))]
        if events:
            self._publisher.publish(KVEventBatch(ts=now, events=events))
        if whole_since is not None:
            self._publisher.publish(KVEventBatch(ts=now, events=[], whole_since=whole_since))

    def _note_stores(self, media: MediaBelow | None) -> bool:
        """Has the plan say which shared stores are off. Whether that is new."""
        off = [] if media is None else media.stores_off
        if self._plan is None or off == self._plan.stores_off:
            return False
        self._plan = msgspec.structs.replace(self._plan, stores_off=off)
        return True

    def close(self) -> None:
        self._publisher.close()
