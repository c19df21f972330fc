"""A publisher without heartbeats, such as vLLM's: a lost connection tells that nobody knows how it is."""

from dataclasses import replace

import pytest

from octavo.events.followed_publisher import FollowedPublisher
from octavo.events.session import Delivered, Heard, PublisherSession, Resync, Silence
from octavo.events.subscriber import Subscriber
from octavo.events.subscriber_config import SourceConfig, SubscriberConfig
from rigs.event_peer import PATIENCE_S, Peer, take, told
from rigs.network_link import NetworkLink

NEVER = float("inf")
LOST_S = 0.05


@pytest.fixture
def linked():
    """A publisher, and the links of its events and its replay to a subscriber."""
    with Peer() as peer:
        links = [NetworkLink(endpoint) for endpoint in (peer.endpoint, peer.replay_endpoint)]
        try:
            yield peer, *links
        finally:
            for link in links:
                link.close()


def reader_of(events, replay=None):
    source = SourceConfig(endpoint=tcp(events), replay_endpoint=None if replay is None else tcp(replay))
    return Subscriber(SubscriberConfig(sources=(source,), lost_s=LOST_S, replay_timeout_s=PATIENCE_S, recheck_s=0))


def tcp(link):
    return link.url.replace("http", "tcp")


def test_its_silence_ends_when_it_can_be_reached_again_and_has_nothing_new(linked):
    peer, events, replay = linked
    with reader_of(events, replay) as reader:
        peer.await_subscriber(reader)
        peer.send(0)
        assert told(take(reader, 1)) == [0]
        for _ in range(2):
            for link in (events, replay):
                link.break_off()
            (silence,) = take(reader, 1)
            assert isinstance(silence, Silence)
            assert silence.silent_s >= LOST_S
            for link in (replay, events):
                link.heal()
            assert take(reader, 1) == [Heard(endpoint=reader.endpoints[0])]
            assert peer.await_subscriber(reader) == []
        peer.send(1)
        assert told(take(reader, 1)) == [1]


def test_what_it_said_meanwhile_is_replayed(linked):
    peer, events, replay = linked
    with reader_of(events, replay) as reader:
        peer.await_subscriber(reader)
        peer.send(0)
        take(reader, 1)
        for link in (events, replay):
            link.break_off()
        assert isinstance(take(reader, 1)[0], Silence)
        peer.send(1, is_lost=True)
        for link in (replay, events):
            link.heal()
        missed, heard = take(reader, 2)
        assert (told([missed]), heard) == ([1], Heard(endpoint=reader.endpoints[0]))


def test_without_replay_its_state_is_unknown_after_the_silence(linked):
    peer, events, _ = linked
    with reader_of(events) as reader:
        peer.await_subscriber(reader)
        peer.send(0)
        first = next(item for item in iter(lambda: reader.poll(PATIENCE_S), None) if isinstance(item, Delivered))
        assert told([first]) == [0]
        events.break_off()
        assert isinstance(take(reader, 1)[0], Silence)
        events.heal()
        assert isinstance(take(reader, 1)[0], Resync)


def test_a_connection_that_is_cut_off_is_not_said_to_have_wrong_keys(linked, caplog):
    _, events, _ = linked
    events.break_off()
    with reader_of(events) as reader:
        while not caplog.records:
            assert reader.poll(0.01) is None
    (told,) = caplog.messages
    assert "something between cuts them off" in told


def test_when_a_publisher_is_silent():
    publisher = FollowedPublisher(session=PublisherSession(can_replay=True), heard_at=100.0)
    assert publisher.silent_at(lost_at=None, patience_s=30.0) == NEVER
    assert publisher.silent_at(lost_at=110.0, patience_s=30.0) == 140.0
    answered = replace(publisher, answered_at=120.0)
    assert answered.silent_at(lost_at=110.0, patience_s=30.0) == 150.0
    assert answered.silent_s(150.0) == 30.0
    heard = replace(publisher, heard_at=111.0)  # a message that was under way when the connection was lost
    assert heard.silent_at(lost_at=110.0, patience_s=30.0) == 141.0
    silent = replace(publisher, is_silent=True)
    assert silent.silent_at(lost_at=110.0, patience_s=30.0) == NEVER
    assert (silent.answers(160.0), silent.is_silent, silent.answers(170.0)) == (True, False, False)


def test_heartbeats_that_are_missing_are_silence_though_replay_is_answered():
    publisher = FollowedPublisher(session=PublisherSession(can_replay=True))
    publisher.promised(10.0, now=100.0)
    assert not publisher.answers(129.0)
    assert publisher.silent_at(lost_at=None, patience_s=1.0) == 130.0
    publisher.is_silent = True
    assert (publisher.answers(131.0), publisher.is_silent) == (False, True)
    assert publisher.silent_s(131.0) == 31.0
