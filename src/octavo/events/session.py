"""What a subscriber knows of one publisher, as plain bookkeeping: which message to deliver, what to ask again, and when
to say that the publisher's state is unknown.

Within one life of a publisher its live sequence numbers strictly increase, and what it sends again is always the newest
part of what it has sent. From this follows everything:

    last_live       next
        |            |
    ----+==ahead==+--+-----> sequence
        |  came by replay, and is still to come live: the same digest is a duplicate, any other is another life
        a live number at or below `last_live` is another life

After a gap or a lost connection, replay is asked for the last message that was seen and all that follow: if the digest
of the first one agrees, it is the same life, and nothing is lost. Two lives' messages differ, as they carry the time.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

import msgspec

from octavo.events.messages import KVEventBatch

_MAX_REQUESTS = 8
"""For one gap: vLLM's replay socket drops what its client does not read fast enough, so an answer may have holes."""


class ResyncReason(Enum):
    """Why a publisher's state is unknown."""

    LATE_JOIN = "late join"
    """Messages from before the first that was received."""
    GAP = "gap"
    """Messages that cannot be had again."""
    RECONNECTED = "reconnected"
    """The connection was lost, and nothing tells what happened meanwhile."""
    RESTARTED = "restarted"
    """The publisher is another one than before."""
    MALFORMED = "malformed"
    """A message that could not be read."""
    MISMATCHED = "mismatched"
    """The replay endpoint answers for another publisher than the one that is heard live."""


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """The next batch of one publisher. There are many: a struct takes a tenth of the time of a frozen dataclass."""

    sequence: int
    topic: str
    batch: KVEventBatch
    endpoint: str
    payload: bytes
    """The batch as it came."""
    is_replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync:
    """The publisher's state is unknown: forget it. What is delivered from here on holds, but may not be all."""

    reason: ResyncReason
    expected: int
    got: int | None
    """The sequence of the batch that follows, if one does at once."""
    is_from_start: bool = False
    """What follows begins with the publisher's first batch: a view that starts empty here is complete."""
    topic: str = ""
    endpoint: str = ""


SubscriberItem: TypeAlias = Delivered | Resync


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to do, in this order."""

    resync: Resync | None = None
    deliver: bool = False
    """The message that was given; at the end of a replay, the live one that was held for it."""
    replay_from: int | None = None
    """Ask replay from this sequence on, and hold the live message, and all others, until its answer has ended."""
    is_duplicate: bool = False
    has_failed: bool = False
    """The answer breaks the rules: call `replay_failed`."""


_NOTHING = Verdict()
_DELIVER = Verdict(deliver=True)
_DUPLICATE = Verdict(is_duplicate=True)
_VIOLATION = Verdict(has_failed=True)


class _Consumer(Enum):
    """What the one who reads has."""

    FRESH = auto()
    """Nothing, and it has not been told anything."""
    EMPTY = auto()
    """Nothing since it was told to forget."""
    FILLED = auto()


@dataclass(slots=True, kw_only=True)
class _Question:
    """What replay is asked, and why."""

    reason: ResyncReason
    expected: int
    start: int
    digest: int | None
    """Of the message at `start`, which was seen; None where the answer shall start with the publisher's beginning."""
    held: tuple[int, int] | None
    """Sequence and digest of the live message that raised the question."""
    is_other_life: bool = False
    """The publisher does not have the message that was seen last."""
    is_recheck: bool = False
    """Nothing tells that anything is amiss, and no answer changes nothing."""
    num_requests: int = 1
    has_begun: bool = False
    has_progress: bool = False


class PublisherSession:
    """Decides about the messages of one publisher. It does no I/O.

    The caller gives every live message to `live`, unless replay was asked: then it gives the answer's messages to
    `replayed`, and calls `replay_ended` or `replay_failed`, before it goes on with what came live meanwhile. It calls
    `interrupted` whenever a connection was made anew, after throwing away the live messages of the old one.
    """

    def __init__(self, *, can_replay: bool) -> None:
        self._can_replay = can_replay
        self._consumer = _Consumer.FRESH
        self._question: _Question | None = None
        self._next: int | None = None
        self._last_digest = 0
        self.num_gaps = 0
        self._forget()

    @property
    def is_asking(self) -> bool:
        """Whether an answer of replay is awaited."""
        return self._question is not None

    def live(self, sequence: int, digest: int) -> Verdict:
        """Takes a live message."""
        assert self._question is None, "live messages wait for the end of a replay"
        if self._next is not None and sequence > self._last_live:
            if self._ahead.get(sequence) == digest or sequence < self._floor:
                self._saw_live(sequence)
                return _DUPLICATE
            if sequence == self._next:
                self._saw_live(sequence)
                return self._take(sequence, digest)
        reason = self._why_not(sequence)
        self.num_gaps += reason is ResyncReason.GAP
        if not self._can_replay or sequence == 0:
            return self._go_on_live(reason, sequence, digest, expected=self._next or 0)
        return self._ask(reason, held=(sequence, digest))

    def replayed(self, sequence: int, digest: int) -> Verdict:
        """Takes one message of an answer."""
        question = self._question
        assert question is not None, "nothing was asked"
        if not question.has_begun:
            return self._take_first_replayed(question, sequence, digest)
        assert self._next is not None
        if sequence < self._next:
            return _VIOLATION
        if sequence > self._next and question.has_progress and question.num_requests < _MAX_REQUESTS:
            return self._ask_again(question)
        question.has_progress = True
        reason = ResyncReason.GAP if sequence > self._next else None
        return self._take_replayed(sequence, digest, reason=reason, expected=self._next)

    def replay_ended(self) -> Verdict:
        """The answer was received whole."""
        question = self._question
        assert question is not None, "nothing was asked"
        if not question.has_begun:
            is_over = question.digest is None or question.is_recheck
            return self._unanswered(question) if is_over else self._ask_from_start(question)
        if question.held is None:
            self._question = None
            return _NOTHING
        sequence, digest = question.held
        if self._ahead.get(sequence) == digest or sequence < self._floor:
            self._question = None
            self._saw_live(sequence)
            return _DUPLICATE
        if question.has_progress and question.num_requests < _MAX_REQUESTS and sequence not in self._ahead:
            return self._ask_again(question)
        self._question = None  # a message that came before the question is in the answer of its publisher
        return self._go_on_live(ResyncReason.MISMATCHED, sequence, digest, expected=self._next or 0)

    def replay_failed(self) -> Verdict:
        """The answer did not come, or broke off."""
        question = self._question
        assert question is not None, "nothing was asked"
        if question.has_progress and question.num_requests < _MAX_REQUESTS:
            return self._ask_again(question)
        if not question.has_begun:
            return self._unanswered(question)
        self._question = None
        if question.held is None:
            return _NOTHING
        sequence, digest = question.held
        if self._ahead.get(sequence) == digest or sequence < self._floor:
            self._saw_live(sequence)
            return _DUPLICATE
        return self._go_on_live(question.reason, sequence, digest, expected=self._next or 0)

    def interrupted(self) -> Verdict:
        """A connection was made, the first or a new one: messages may be missing, or the publisher another one."""
        if not self._can_replay:
            return self._say_unknown(ResyncReason.RECONNECTED)
        is_fresh = self._consumer is _Consumer.FRESH
        return self._ask(ResyncReason.LATE_JOIN if is_fresh else ResyncReason.RECONNECTED, held=None)

    def recheck(self) -> Verdict:
        """Nothing came for a while: the last messages may have been lost, which only a later one would show."""
        if not self._can_replay:
            return _NOTHING
        verdict = self._ask(ResyncReason.LATE_JOIN if self._next is None else ResyncReason.GAP, held=None)
        assert self._question is not None
        self._question.is_recheck = True
        return verdict

    def malformed(self, sequence: int) -> Resync:
        """The message to be delivered cannot be read, so that what it says is lost."""
        self._consumer = _Consumer.EMPTY
        return Resync(reason=ResyncReason.MALFORMED, expected=sequence, got=sequence)

    def _why_not(self, sequence: int) -> ResyncReason:
        if self._next is None:
            return ResyncReason.LATE_JOIN if self._consumer is _Consumer.FRESH else ResyncReason.RESTARTED
        if sequence < self._next:
            return ResyncReason.RESTARTED
        return ResyncReason.GAP

    def _ask(self, reason: ResyncReason, *, held: tuple[int, int] | None) -> Verdict:
        expected = self._next or 0
        if reason is ResyncReason.RESTARTED:
            self._forget()
        is_known = self._next is not None
        self._question = _Question(
            reason=reason,
            expected=expected,
            start=expected - 1 if is_known else 0,
            digest=self._last_digest if is_known else None,
            held=held,
        )
        return Verdict(replay_from=self._question.start)

    def _ask_again(self, question: _Question) -> Verdict:
        """For what did not come after the last message that did."""
        assert self._next is not None
        question.start, question.digest = self._next - 1, self._last_digest
        question.has_begun = question.has_progress = False
        question.num_requests += 1
        return Verdict(replay_from=question.start)

    def _ask_from_start(self, question: _Question) -> Verdict:
        """The publisher does not have the message that was seen last: it is another, or keeps nothing."""
        self._forget()
        question.start, question.digest = 0, None
        question.has_begun = question.has_progress = False
        question.is_other_life, question.is_recheck = True, False
        return Verdict(replay_from=0)

    def _take_first_replayed(self, question: _Question, sequence: int, digest: int) -> Verdict:
        if sequence < question.start:
            return _VIOLATION
        is_known = question.digest is not None and sequence == question.start
        if is_known and digest != question.digest:
            return self._ask_from_start(question)
        question.has_begun = True
        if is_known:
            return _DUPLICATE
        self._forget()
        self._floor = sequence
        question.has_progress = True
        reason = ResyncReason.RESTARTED if question.is_other_life else question.reason
        return self._take_replayed(sequence, digest, reason=reason, expected=question.expected)

    def _unanswered(self, question: _Question) -> Verdict:
        """Replay is of no help: go on with what came live."""
        self._question = None
        if question.is_recheck:
            return _NOTHING
        if question.held is None:
            return self._say_unknown(question.reason, expected=question.expected)
        return self._go_on_live(question.reason, *question.held, expected=question.expected)

    def _say_unknown(self, reason: ResyncReason, *, expected: int | None = None) -> Verdict:
        expected = self._next or 0 if expected is None else expected
        self._forget()
        if self._consumer is not _Consumer.FILLED:
            return _NOTHING
        self._consumer = _Consumer.EMPTY
        return Verdict(resync=Resync(reason=reason, expected=expected, got=None))

    def _go_on_live(self, reason: ResyncReason, sequence: int, digest: int, *, expected: int) -> Verdict:
        self._forget()
        self._last_live = sequence
        return self._take(sequence, digest, reason=reason, expected=expected)

    def _take_replayed(self, sequence: int, digest: int, *, reason: ResyncReason | None, expected: int) -> Verdict:
        self._ahead[sequence] = digest
        return self._take(sequence, digest, reason=reason, expected=expected)

    def _take(self, sequence: int, digest: int, *, reason: ResyncReason | None = None, expected: int = 0) -> Verdict:
        """Delivers a message. With a reason, it does not continue what was delivered before."""
        is_from_start = sequence == 0
        told = _Consumer.FRESH if is_from_start else _Consumer.EMPTY
        must_tell = reason is not None and self._consumer is not told
        self._consumer = _Consumer.FILLED
        self._next = sequence + 1
        self._last_digest = digest
        if reason is None or not must_tell:
            return _DELIVER
        resync = Resync(reason=reason, expected=expected, got=sequence, is_from_start=is_from_start)
        return Verdict(resync=resync, deliver=True)

    def _saw_live(self, sequence: int) -> None:
        self._last_live = sequence
        while self._ahead and (first := next(iter(self._ahead))) <= sequence:
            del self._ahead[first]

    def _forget(self) -> None:
        """Nothing is known of the publisher any more."""
        self._next = None
        self._last_live = -1
        self._floor = 0
        """Live messages before it are older than what replay delivered when it no longer reached far enough."""
        self._ahead: dict[int, int] = {}
        """Digests of what replay delivered and what has not come live."""
