"""The session of one publisher: single decisions, and a state machine beside a naive publisher that loses messages,
restarts, and keeps only some of what it sent."""

from collections import deque

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from octavo.events.session import PublisherSession, ResyncReason, Verdict

DELIVER = Verdict(deliver=True)
DUPLICATE = Verdict(is_duplicate=True)


def heard(*sequences, can_replay=True):
    session = PublisherSession(can_replay=can_replay)
    for sequence in sequences:
        assert session.live(sequence, sequence).deliver
    return session


def lost(verdict):
    assert verdict.deliver
    return verdict.resync.reason, verdict.resync.expected, verdict.resync.got, verdict.resync.is_from_start


def test_in_order():
    session = heard(0, 1, 2)
    assert session.live(3, 3) == DELIVER


def test_without_replay_whatever_is_missing_is_a_resync():
    session = heard(0, 1, can_replay=False)
    assert lost(session.live(5, 5)) == (ResyncReason.GAP, 2, 5, False)
    assert lost(session.live(3, 3)) == (ResyncReason.RESTARTED, 6, 3, False)
    assert lost(session.live(0, 0)) == (ResyncReason.RESTARTED, 4, 0, True)
    assert session.interrupted().resync.reason is ResyncReason.RECONNECTED
    assert session.interrupted() == Verdict()
    assert session.live(7, 7) == DELIVER  # nothing is held that could be wrong
    assert lost(PublisherSession(can_replay=False).live(4, 4)) == (ResyncReason.LATE_JOIN, 0, 4, False)


def test_a_gap_that_replay_fills():
    session = heard(0, 1)
    assert session.live(4, 4) == Verdict(replay_from=1)
    assert session.replayed(1, 1) == DUPLICATE
    assert [session.replayed(i, i) for i in (2, 3, 4, 5)] == [DELIVER] * 4
    assert session.replay_ended() == DUPLICATE
    assert session.live(5, 5) == DUPLICATE
    assert session.live(6, 6) == DELIVER
    assert session.num_gaps == 1


def test_a_gap_that_replay_no_longer_reaches():
    session = heard(0, 1)
    session.live(4, 4)
    assert lost(session.replayed(9, 9)) == (ResyncReason.GAP, 2, 9, False)
    assert session.replayed(10, 10) == DELIVER
    assert session.replay_ended() == DUPLICATE  # the held message is older than all that
    assert [session.live(i, i) for i in (5, 8, 9, 10)] == [DUPLICATE] * 4
    assert session.live(11, 11) == DELIVER


def test_a_late_join_with_the_whole_history_is_no_resync():
    session = PublisherSession(can_replay=True)
    assert session.live(2, 2) == Verdict(replay_from=0)
    assert [session.replayed(i, i) for i in (0, 1, 2)] == [DELIVER] * 3
    assert session.replay_ended() == DUPLICATE


@pytest.mark.parametrize("begins", [PublisherSession.interrupted, lambda session: session.live(6, 6)])
def test_a_late_join_with_part_of_the_history(begins):
    session = PublisherSession(can_replay=True)
    begins(session)
    assert lost(session.replayed(5, 5)) == (ResyncReason.LATE_JOIN, 0, 5, False)


def test_a_replay_that_does_not_answer():
    session = heard(0, 1)
    session.live(4, 4)
    assert lost(session.replay_failed()) == (ResyncReason.GAP, 2, 4, False)
    assert session.live(5, 5) == DELIVER


def test_a_restart_with_a_higher_sequence_is_found_by_the_digest():
    session = heard(0, 1, 2)
    assert session.live(7, 70) == Verdict(replay_from=2)
    assert session.replayed(2, 20) == Verdict(replay_from=0)
    assert lost(session.replayed(0, 0)) == (ResyncReason.RESTARTED, 3, 0, True)
    assert [session.replayed(i, 10 * i) for i in range(1, 8)] == [DELIVER] * 7
    assert session.replay_ended() == DUPLICATE


def test_a_restart_with_the_very_next_sequence_is_found_after_a_reconnect():
    session = heard(0, 1, 2)
    assert session.interrupted() == Verdict(replay_from=2)
    assert session.replayed(2, 20) == Verdict(replay_from=0)


def test_a_restarted_publisher_that_has_sent_nothing():
    session = heard(0, 1, 2)
    session.interrupted()
    assert session.replay_ended() == Verdict(replay_from=0)
    verdict = session.replay_ended()
    assert (verdict.resync.reason, verdict.resync.got) == (ResyncReason.RECONNECTED, None)
    assert lost(session.live(0, 10)) == (ResyncReason.RESTARTED, 0, 0, True)


def test_a_live_message_that_differs_from_what_replay_said_is_another_life():
    session = heard(0)
    session.live(2, 2)
    for i in (0, 1, 2, 3):
        session.replayed(i, i)
    session.replay_ended()
    assert session.live(3, 33) == Verdict(replay_from=0)


def test_an_answer_with_a_hole_is_asked_for_once_more():
    session = heard(0)
    session.live(5, 5)
    assert [session.replayed(i, i) for i in (0, 1)] == [DUPLICATE, DELIVER]
    assert session.replayed(4, 4) == Verdict(replay_from=1)
    assert session.replayed(1, 1) == DUPLICATE
    assert lost(session.replayed(4, 4)) == (ResyncReason.GAP, 2, 4, False)  # it is not there at all
    assert session.replayed(5, 5) == DELIVER


def test_answers_with_ever_new_holes_are_not_asked_for_without_end():
    session = heard(0)
    session.live(1000, 1000)
    assert session.replayed(0, 0) == DUPLICATE
    for asked_before in range(1, 8):
        last = asked_before - 1
        assert session.replayed(last + 1, last + 1) == DELIVER
        assert session.replayed(last + 3, last + 3) == Verdict(replay_from=last + 1)
        assert session.replayed(last + 1, last + 1) == DUPLICATE
    assert session.replayed(8, 8) == DELIVER
    assert lost(session.replayed(10, 10)) == (ResyncReason.GAP, 9, 10, False)


def test_a_replay_endpoint_of_another_publisher():
    session = PublisherSession(can_replay=True)
    session.live(40, 40)
    assert session.replayed(0, 1000).deliver
    assert session.replay_ended() == Verdict(replay_from=0)
    session.replayed(0, 1000)
    assert lost(session.replay_ended()) == (ResyncReason.MISMATCHED, 1, 40, False)
    assert session.live(41, 41) == DELIVER


def test_answers_that_go_backwards_have_failed():
    session = heard(0, 1)
    session.live(4, 4)
    session.replayed(1, 1)
    session.replayed(2, 2)
    assert session.replayed(2, 2).has_failed
    assert session.replay_failed() == Verdict(replay_from=2)


def test_an_answer_that_begins_before_what_was_asked_for_has_failed():
    session = heard(0, 1, 2)
    assert session.live(5, 5) == Verdict(replay_from=2)
    assert session.replayed(1, 1).has_failed
    assert lost(session.replay_failed()) == (ResyncReason.GAP, 3, 5, False)


def test_an_answer_that_broke_off_has_told_what_was_expected():
    session = heard(0, 1)
    session.live(5, 5)
    assert [session.replayed(i, i) for i in (1, 2, 3)] == [DUPLICATE, DELIVER, DELIVER]
    assert session.replay_failed() == Verdict(replay_from=3)
    assert lost(session.replayed(6, 6)) == (ResyncReason.GAP, 4, 6, False)


def test_a_malformed_message_is_a_resync_and_the_next_ones_continue():
    session = heard(0)
    assert session.live(1, 1).deliver
    assert session.malformed(1).reason is ResyncReason.MALFORMED
    assert session.live(2, 2) == DELIVER


def test_looking_again_finds_what_was_lost_last():
    session = heard(0, 1)
    assert session.recheck() == Verdict(replay_from=1)
    assert [session.replayed(i, i) for i in (1, 2, 3)] == [DUPLICATE, DELIVER, DELIVER]
    assert session.replay_ended() == Verdict()
    session.recheck()
    assert session.replay_failed() == Verdict()  # which says nothing
    session.recheck()
    assert session.replay_ended() == Verdict()
    assert session.live(4, 4) == DELIVER


def test_looking_again_finds_another_publisher_that_then_does_not_answer():
    session = heard(0, 1)
    session.recheck()
    assert session.replayed(1, 10) == Verdict(replay_from=0)
    assert session.replay_failed().resync.expected == 2


def test_what_a_failed_replay_left_out_is_asked_for_again():
    session = heard(0, 1)
    session.live(5, 5)
    session.replay_failed()
    assert session.live(6, 6) == DELIVER
    assert session.is_unanswered
    assert session.recheck() == Verdict(replay_from=0)
    assert session.replay_failed() == Verdict()
    assert session.recheck() == Verdict(replay_from=0)
    assert lost(session.replayed(0, 0)) == (ResyncReason.GAP, 7, 0, True)
    assert [session.replayed(i, i) for i in range(1, 8)] == [DELIVER] * 7
    assert session.replay_ended() == Verdict()
    assert not session.is_unanswered
    assert session.live(7, 7) == DUPLICATE
    assert session.live(8, 8) == DELIVER


def test_what_a_failed_replay_left_out_and_the_publisher_has_forgotten_is_not_asked_for_forever():
    for answer in ([], [5, 6], [6]):
        session = heard(0, 1)
        session.live(5, 5)
        session.replay_failed()
        session.live(6, 6)
        session.recheck()
        if answer:
            assert session.replayed(answer[0], answer[0]) == Verdict()
            assert not session.is_asking
        else:
            assert session.replay_ended() == Verdict()
        assert not session.is_unanswered
        assert session.live(7, 7) == DELIVER


def test_an_answer_that_broke_off_goes_on_wherever_the_publisher_can_go_on():
    session = heard(0, 1)
    session.live(5, 5)
    session.replay_failed()
    session.live(6, 6)
    session.recheck()
    assert lost(session.replayed(0, 0)) == (ResyncReason.GAP, 7, 0, True)
    assert session.replayed(1, 1) == DELIVER
    assert session.replay_failed() == Verdict(replay_from=1)
    assert lost(session.replayed(7, 7)) == (ResyncReason.GAP, 2, 7, False)


class PublisherMachine(RuleBasedStateMachine):
    """A message is (life, sequence), and that is its digest too. What the consumer has is a list of them."""

    @initialize(can_replay=st.booleans(), keeps=st.integers(0, 9), first_life=st.integers(0, 3))
    def start(self, can_replay, keeps, first_life):
        self.session = PublisherSession(can_replay=can_replay)
        self.can_replay = can_replay
        self.keeps = keeps
        self.life = 0
        self.sent = []  # sequences that were sent in this life: what the publisher dropped is missing
        self.next = 0
        self.wire = deque()
        self.has = []
        self.knows_all = None  # None: has not been told anything
        self.is_lost_for_good = False
        for _ in range(first_life):
            self.publish_unheard()

    @rule()
    def publish(self):
        self.wire.append((self.life, self.next))
        self.publish_unheard()

    @rule()
    def publish_unheard(self):
        self.sent.append(self.next)
        self.next += 1

    @rule()
    def drop_in_publisher(self):
        self.next += 1

    @rule(ahead=st.none() | st.integers(-1, 1), is_drained=st.booleans())
    def restart(self, ahead, is_drained):
        """The new publisher sends some messages before anyone hears it: none, or about as many as the old one."""
        sequences = 0 if ahead is None else max(0, self.next + ahead)
        if is_drained:
            self.read(100)
        self.life += 1
        self.sent, self.next = [], 0
        for _ in range(sequences):
            self.publish_unheard()
        self.reconnect()

    @rule()
    def reconnect(self):
        self.wire.clear()
        self.follow(self.session.interrupted(), None)

    @rule(fails=st.booleans())
    def recheck(self, fails):
        self.follow(self.session.recheck(), None, fails=fails)

    @rule(num=st.integers(1, 5), fails=st.booleans(), cut=st.integers(0, 4), lose_one=st.booleans())
    def read(self, num, fails=False, cut=0, lose_one=False):
        while num and self.wire:
            num -= 1
            message = self.wire.popleft()
            self.follow(self.session.live(message[1], message), message, fails=fails, cut=cut, lose_one=lose_one)

    @rule(fails=st.booleans())
    def read_malformed(self, fails):
        if not self.wire:
            return
        message = self.wire.popleft()
        verdict = self.session.live(message[1], message)
        if verdict.deliver and self.session.is_asking is False and message not in self.has:
            self.forget(is_from_start=False)
            self.is_lost_for_good = True
            self.session.malformed(message[1])
        else:
            self.follow(verdict, message, fails=fails)

    def follow(self, verdict, held, *, fails=False, cut=0, lose_one=False):
        """Does what the session says, and plays the replay socket."""
        self.obey(verdict, held)
        num_asked, is_holed = 0, False
        while verdict.replay_from is not None:
            num_asked += 1
            assert self.can_replay
            assert num_asked < 20, "it never stops asking"
            answer = [s for s in self.sent[max(0, len(self.sent) - self.keeps) :] if s >= verdict.replay_from]
            answer = answer[:cut] if fails else answer
            if lose_one and len(answer) > 2:
                del answer[1]
                is_holed = True
            start = verdict.replay_from
            verdict = Verdict()
            for sequence in answer:
                assert sequence >= start
                verdict = self.session.replayed(sequence, (self.life, sequence))
                assert not verdict.has_failed
                self.obey(verdict, (self.life, sequence))
                if verdict.replay_from is not None or not self.session.is_asking:
                    break
            else:
                verdict = self.session.replay_failed() if fails else self.session.replay_ended()
                self.obey(verdict, held)
        assert not self.session.is_asking
        self.is_lost_for_good |= is_holed

    def obey(self, verdict, message):
        if verdict.resync is not None:
            self.forget(is_from_start=verdict.resync.is_from_start)
        if verdict.deliver:
            if self.knows_all is None:
                assert message[1] == 0, "a late join was not told"
                self.knows_all = True
            self.has.append(message)

    def forget(self, *, is_from_start):
        self.has = []
        self.knows_all = is_from_start
        self.is_lost_for_good = False

    @invariant()
    def what_is_held_is_one_unbroken_run_of_one_life(self):
        if not getattr(self, "has", None):
            return
        life, first = self.has[0]
        assert self.has == [(life, first + i) for i in range(len(self.has))]
        assert not self.knows_all or first == 0

    @invariant()
    def once_something_is_read_it_is_of_this_life(self):
        if getattr(self, "has", None) and not self.wire and self.can_replay and self.keeps:
            # With replay, a new life is noticed when the connection is made.
            assert self.has[0][0] == self.life

    @rule(fails=st.booleans(), num_unheard=st.integers(0, 2))
    def looking_again_finds_what_is_still_there(self, fails, num_unheard):
        for _ in range(num_unheard):
            self.publish_unheard()
        self.publish()
        self.read(1000, fails=fails)
        self.recheck(fails=False)
        is_whole = self.sent == list(range(self.next)) and self.next <= self.keeps
        if self.can_replay and is_whole and not self.is_lost_for_good:
            assert self.has == [(self.life, i) for i in self.sent]
            assert self.knows_all

    @rule()
    def once_more_and_it_agrees(self):
        """After one more message that is heard, the consumer has all, or knows that it has not."""
        self.read(1000)
        self.publish()
        self.read(1000)
        assert self.has[-1] == (self.life, self.next - 1)
        if self.knows_all:
            assert self.has == [(self.life, i) for i in self.sent]
            assert self.sent == list(range(self.next))


TestPublisherMachine = PublisherMachine.TestCase
TestPublisherMachine.settings = settings(max_examples=300)
