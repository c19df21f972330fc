"""`Feed`: takes one engine's events into the index that it shares with all engines of the same plan and hashes."""

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from octavo.errors import InputError, WireError
from octavo.events import (
    NO_STORES,
    AnyEvent,
    Delivered,
    Heard,
    Resync,
    ResyncReason,
    Silence,
    SubscriberItem,
    decode_batch,
    skim_batch,
)
from octavo.router.index import FleetIndex
from octavo.router.indexes import Indexes
from octavo.router.member import Member
from octavo.router.plan_learner import PlanLearner

_logger = logging.getLogger(__name__)
_MOST_WAITING = 1024
_MOST_WAITING_BYTES = 64 << 20
"""The most batches, and the most bytes of their messages, that are kept until the plan is known. Beyond that the oldest
are dropped."""
_MAYBE_ANEW = frozenset({ResyncReason.RESTARTED, ResyncReason.RECONNECTED})
UNUSABLE = "its events cannot be used"
_NO_PLAN = "its plan is not known yet: it has stored nothing since the router looks"


class Feed(ABC):
    """Takes the events of one engine, from one connection to it until its facts change."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self._stores_off: Collection[str] = ()
        """As the last plan among the events tells."""

    def take(self, item: SubscriberItem) -> None:
        """Takes the next item of the subscriber. InputError if the engine cannot be followed any longer."""
        member = self.member
        if member.has_left:
            return
        match item:
            case Delivered():
                self._check_rank(item.batch.data_parallel_rank)
                if item.batch.plan is not None:
                    self._stores_off = item.batch.plan.stores_off
                self._apply(item)
                if member.index is not None:
                    member.index.note_stores_off(member.name, self._stores_off)
                    if item.is_whole:
                        member.index.told_all(member.name)
                member.num_batches += 1
                member.blind = ""
            case Resync(is_from_start=True):
                member.has_begun_anew = True
                self._stores_off = ()
                self._begin_anew()
            case Resync():
                member.has_begun_anew |= item.reason in _MAYBE_ANEW
                self._forget()
            case Heard():
                self._heard()
            case Silence():
                self._silence()
                member.go_blind(f"it has been silent for {item.silent_s:.0f} s")

    def go_on(self) -> bool:
        """Does a part of what takes long. Whether more is left: others may have their turn before."""
        return False

    def _check_rank(self, told: int | None) -> None:
        """An address that names no rank belongs to an engine with one rank."""
        if told and self.member.address.rank is None:
            raise InputError(
                f"they are of data-parallel rank {told}: name all ranks with the events of rank 0, as "
                "URL,ranks=NUMBER,events=tcp://HOST:PORT"
            )

    @abstractmethod
    def _apply(self, item: Delivered) -> None: ...

    def _begin_anew(self) -> None:
        if self.member.index is not None:
            self.member.index.restart(self.member.name)

    def _forget(self) -> None:
        if self.member.index is not None:
            self.member.index.resync(self.member.name)

    def _heard(self) -> None:
        if self.member.index is not None:
            self.member.index.apply(self.member.name, ())
        self.member.blind = "" if self.member.index is not None else _NO_PLAN

    def _silence(self) -> None:
        if self.member.index is not None:
            self.member.index.silence(self.member.name)


class PlannedFeed(Feed):
    """The feed of an engine that told its plan. The engine counts as silent until its first batch comes."""

    def __init__(self, member: Member, index: FleetIndex, stores: Mapping[str, str]) -> None:
        super().__init__(member)
        index.add_engine(member.name, stores=stores)
        index.silence(member.name)
        member.index = index

    def _apply(self, item: Delivered) -> None:
        assert self.member.index is not None
        self.member.index.apply(self.member.name, item.batch.events)


class LearningFeed(Feed):
    """The feed of an engine whose plan is learned. Its blocks move to another index whenever the plan has grown. An
    engine that begins anew may have another plan and other hashes, so these are learned again."""

    def __init__(
        self,
        member: Member,
        indexes: Indexes,
        *,
        algorithm: str,
        learner: PlanLearner,
        stores: Mapping[str, str] = NO_STORES,
    ) -> None:
        super().__init__(member)
        self._indexes = indexes
        self._algorithm = algorithm
        self._learner = learner
        self._stores = stores
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._is_complete = True
        self._is_refused = False
        member.blind = _NO_PLAN

    def take(self, item: SubscriberItem) -> None:
        """What cannot be used is refused until the engine may have begun anew: nobody says when it has other settings
        but its events."""
        if self._is_refused and not isinstance(item, Resync):
            return
        self._is_refused = False
        with self._refusing():
            super().take(item)

    def go_on(self) -> bool:
        """Tries ways of hashing that are left."""
        if self._learner.is_trying:
            with self._refusing():
                if self._learner.go_on():
                    self._move()
                if self.member.index is not None:
                    self.member.index.note_stores_off(self.member.name, self._stores_off)
        return self._learner.is_trying

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            self._is_refused = True
            self._learn_anew()
            self.member.go_blind(f"{UNUSABLE}: {error}")

    def _apply(self, item: Delivered) -> None:
        plan = item.batch.plan
        is_new = plan is not None and self._learner.take_plan(plan)
        self.member.learns_plan = not self._learner.is_told
        events = _with_tokens(item) if self._learner.needs_tokens else item.batch.events
        if self._learner.take(events) or is_new:
            self._move()
        if self.member.index is not None:
            self.member.index.apply(self.member.name, item.batch.events)
            return
        self._wait(item)

    def _wait(self, item: Delivered) -> None:
        """Keeps the message: decoded it takes up to 30 times as much."""
        self._waiting.append(item.payload)
        self._waiting_bytes += len(item.payload)
        while len(self._waiting) > _MOST_WAITING or self._waiting_bytes > _MOST_WAITING_BYTES:
            self._waiting_bytes -= len(self._waiting.popleft())
            self._is_complete = False

    def _wait_no_more(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    def _begin_anew(self) -> None:
        self._learn_anew()
        self._is_complete = True
        self.member.blind = _NO_PLAN

    def _learn_anew(self) -> None:
        self._indexes.forget(self.member)
        self._learner.forget()
        self._wait_no_more()

    def _forget(self) -> None:
        super()._forget()
        self._wait_no_more()
        self._is_complete = False

    def _move(self) -> None:
        member, learned = self.member, self._learner.plan
        if learned is None:
            return
        index = self._indexes.find(
            learned.plan,
            algorithm=self._algorithm,
            seed=learned.hash_seed,
            lookahead_tokens=learned.lookahead_tokens,
        )
        kinds = ", ".join(f"{group.kind} {group.block_size}" for group in learned.plan.groups)
        _logger.info("engine %s: its groups are %s", member.name, kinds)
        if member.index is None:
            index.add_engine(member.name, is_complete=self._is_complete, stores=self._stores)
            for payload in self._waiting:
                index.apply(member.name, skim_batch(payload).events)
            self._wait_no_more()
        else:
            member.index.move_engine(member.name, index)
            self._indexes.drop_empty()
        member.index = index


def _with_tokens(item: Delivered) -> Sequence[AnyEvent]:
    """A batch with its tokens, which the subscriber skips. Nothing is learned from tokens that are no numbers."""
    try:
        return decode_batch(item.payload).events
    except WireError:
        return ()
