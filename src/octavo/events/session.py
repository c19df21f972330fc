"""`PublisherSession`: a subscriber's bookkeeping of one publisher, without I/O. It decides which message to deliver,
from where to ask for replay, and when the publisher's state is unknown.

A life of a publisher is the time from its start to its end. Two facts hold within one life: live sequence numbers
strictly increase, and an answer of replay is always the newest part of the messages sent so far. So:

    last_live       next
        |            |
    ----+==ahead==+--+-----> sequence
        |  `ahead` came by replay and will come live too: with the same digest it is a duplicate, with another digest
        |  the publisher has begun another life
        a live number at or below `last_live` is of another life

After a gap or a lost connection the session asks replay for the last message that it saw and all later ones. If the
digest of the first one agrees, it is the same life and nothing is lost. Messages of two lives differ in their times.
If replay does not answer, the session goes on with live messages, and `recheck` asks for everything once more.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

import msgspec

from octavo.events.messages import KVEventBatch

_MAX_REQUESTS = 8
"""The most requests for one gap. vLLM's replay socket drops messages that its client reads too slowly, so an answer
may have holes."""


class ResyncReason(Enum):
    """Why a publisher's state is unknown."""

    LATE_JOIN = "late join"
    """Messages before the first received one are missing."""
    GAP = "gap"
    """Messages are missing, and replay does not have them."""
    RECONNECTED = "reconnected"
    """The connection was lost, and messages of that time may be missing."""
    RESTARTED = "restarted"
    """The publisher was started anew."""
    MALFORMED = "malformed"
    """A message could not be decoded."""
    MISMATCHED = "mismatched"
    """The replay endpoint belongs to another publisher than the live endpoint."""


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """The next batch of one publisher. A struct, since making one takes a tenth of the time of a frozen dataclass."""

    sequence: int
    topic: str
    batch: KVEventBatch
    endpoint: str
    payload: bytes
    """The encoded batch."""
    is_replayed: bool
    is_whole: bool = False
    """With this batch all has been told that the publisher holds, whatever was missed before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync:
    """The publisher's state is unknown: forget it. Later batches are correct, but do not tell the blocks stored before
    them."""

    reason: ResyncReason
    expected: int
    got: int | None
    """The sequence number of the batch that follows at once; None if none does."""
    is_from_start: bool = False
    """The next batch is the publisher's first: a view that starts empty here is complete."""
    topic: str = ""
    endpoint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A publisher has ended, hangs, or cannot be reached: nothing came for three of the heartbeats that its plan
    promises; or, where it promises none, its connection was lost for `lost_s` and replay has no answer either. Its next
    batch, `Resync` or `Heard` ends the silence."""

    silent_s: float
    topic: str = ""
    endpoint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A silent publisher can be reached again, and has nothing new to tell."""

    topic: str = ""
    endpoint: str = ""


SubscriberItem: TypeAlias = Delivered | Resync | Silence | Heard


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the caller must do, in the order of the fields."""

    resync: Resync | None = None
    deliver: bool = False
    """Deliver the message that was given; at the end of a replay, the live message that was held back."""
    replay_from: int | None = None
    """Ask replay from this sequence on, and hold back live messages until its answer has ended."""
    is_duplicate: bool = False
    has_failed: bool = False
    """The answer breaks the rules: call `replay_failed`."""


_NOTHING = Verdict()
_DELIVER = Verdict(deliver=True)
_DUPLICATE = Verdict(is_duplicate=True)
_VIOLATION = Verdict(has_failed=True)


class _Consumer(Enum):
    """What the reader of this publisher knows."""

    FRESH = auto()
    """It got neither a batch nor a resync."""
    EMPTY = auto()
    """It got no batch since the last resync."""
    FILLED = auto()


@dataclass(slots=True, kw_only=True)
class _Question:
    """A request for replay, and its reason."""

    reason: ResyncReason
    expected: int
    start: int
    digest: int | None
    """The digest of the known message at `start`; None if the answer shall start with the publisher's first."""
    held: tuple[int, int] | None
    """Sequence and digest of the live message that caused the request."""
    is_other_life: bool = False
    """The publisher does not have the last known message."""
    is_recheck: bool = False
    """A check without a new sign of loss: if no answer comes, nothing changes."""
    must_precede: int | None = None
    """The answer is of use only if it begins before this sequence, since all later messages are known."""
    num_requests: int = 1
    has_begun: bool = False
    has_progress: bool = False


class PublisherSession:
    """Decides about the messages of one publisher.

    The caller gives every live message to `live`. After a verdict with `replay_from` it gives the messages of the
    answer to `replayed`, calls `replay_ended` or `replay_failed`, and only then goes on with live messages. For each
    new connection it drops the live messages of the old one and calls `interrupted`.
    """

    def __init__(self, *, can_replay: bool) -> None:
        self._can_replay = can_replay
        self._consumer = _Consumer.FRESH
        self._question: _Question | None = None
        self._next: int | None = None
        self._last_digest = 0
        self._unanswered_before: int | None = None
        """Messages from this sequence on were delivered after a replay that failed; it may have earlier ones."""
        self.num_gaps = 0
        self._forget()

    @property
    def is_asking(self) -> bool:
        """Whether a replay is under way."""
        return self._question is not None

    @property
    def is_unanswered(self) -> bool:
        """Whether messages are missing that a replay may have that failed: only `recheck` asks for them again."""
        return self._unanswered_before is not None

    def live(self, sequence: int, digest: int) -> Verdict:
        """Takes a live message."""
        assert self._question is None, "live messages wait for the end of a replay"
        if self._next is not None and sequence > self._last_live:
            if self._is_known(sequence, digest):
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
        """The answer is complete."""
        question = self._question
        assert question is not None, "nothing was asked"
        if not question.has_begun:
            if question.must_precede is not None:
                self._unanswered_before = None
            is_over = question.digest is None or question.is_recheck
            return self._unanswered(question) if is_over else self._ask_from_start(question)
        if question.held is None:
            self._question = None
            return _NOTHING
        sequence, digest = question.held
        if self._is_known(sequence, digest):
            self._question = None
            self._saw_live(sequence)
            return _DUPLICATE
        if question.has_progress and question.num_requests < _MAX_REQUESTS and sequence not in self._ahead:
            return self._ask_again(question)
        self._question = None  # a message that came before the question is in the answer of its publisher
        return self._go_on_live(ResyncReason.MISMATCHED, sequence, digest, expected=self._next or 0)

    def replay_failed(self) -> Verdict:
        """The answer did not come or is incomplete."""
        question = self._question
        assert question is not None, "nothing was asked"
        if question.has_progress and question.num_requests < _MAX_REQUESTS:
            return self._ask_again(question)
        if not question.has_begun:
            verdict = self._unanswered(question)
        else:
            self._question = None
            if question.held is None:
                return _NOTHING
            sequence, digest = question.held
            if self._is_known(sequence, digest):
                self._saw_live(sequence)
                return _DUPLICATE
            verdict = self._go_on_live(question.reason, sequence, digest, expected=self._next or 0)
        if question.held is not None:
            self._unanswered_before = question.held[0]
        return verdict

    def interrupted(self) -> Verdict:
        """A connection was made, the first or a new one: messages may be missing, or the publisher may be new."""
        if not self._can_replay:
            return self._say_unknown(ResyncReason.RECONNECTED)
        is_fresh = self._consumer is _Consumer.FRESH
        return self._ask(ResyncReason.LATE_JOIN if is_fresh else ResyncReason.RECONNECTED, held=None)

    def recheck(self) -> Verdict:
        """No message came for a while: the last ones may be lost, and only a later message would show it. Or some time
        has passed since a replay failed: it may have an answer now."""
        if not self._can_replay:
            return _NOTHING
        verdict = self._ask(ResyncReason.LATE_JOIN if self._next is None else ResyncReason.GAP, held=None)
        question = self._question
        assert question is not None
        question.is_recheck = True
        if self._unanswered_before is None:
            return verdict
        question.start, question.digest, question.must_precede = 0, None, self._unanswered_before
        return Verdict(replay_from=0)

    def malformed(self, sequence: int) -> Resync:
        """The message to be delivered cannot be decoded, so its content is lost."""
        self._consumer = _Consumer.EMPTY
        return Resync(reason=ResyncReason.MALFORMED, expected=sequence, got=sequence)

    def _is_known(self, sequence: int, digest: int) -> bool:
        """Whether a live message is nothing new: replay had it already, or it is older than what replay had."""
        return self._ahead.get(sequence) == digest or sequence < self._floor

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
        """Asks for the messages after the last one that came."""
        assert self._next is not None
        question.start, question.digest, question.expected = self._next - 1, self._last_digest, self._next
        question.has_begun = question.has_progress = False
        question.must_precede = None
        question.num_requests += 1
        return Verdict(replay_from=question.start)

    def _ask_from_start(self, question: _Question) -> Verdict:
        """The publisher does not have the last known message: it is a new one, or its buffer is empty."""
        self._forget()
        question.start, question.digest = 0, None
        question.has_begun = question.has_progress = False
        question.is_other_life, question.is_recheck = True, False
        return Verdict(replay_from=0)

    def _take_first_replayed(self, question: _Question, sequence: int, digest: int) -> Verdict:
        if sequence < question.start:
            return _VIOLATION
        if question.must_precede is not None and sequence >= question.must_precede:
            self._question, self._unanswered_before = None, None
            return _NOTHING
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
        """Replay did not help: goes on with the live message."""
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
        """Delivers a message. A reason says why it does not follow the last delivered one."""
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
        """Forgets everything about the publisher's messages."""
        self._next = None
        self._last_live = -1
        self._floor = 0
        """Live messages below it are older than the first message of a replay whose buffer had lost them."""
        self._ahead: dict[int, int] = {}
        """Digests of messages that replay delivered and that have not come live yet."""
        self._unanswered_before = None
