"""A subscriber that is stopped, or whose machine is gone, holds no memory of its publisher."""

import signal
import subprocess
import sys
from contextlib import ExitStack

import zmq
from zmq.utils.monitor import recv_monitor_message

from rigs.event_peer import Peer, subscriber, take, told
from rigs.processes import bound

SUBSCRIBER = """
import sys
from octavo.events import Delivered, SourceConfig, Subscriber, SubscriberConfig
source = SourceConfig(endpoint=sys.argv[1], replay_endpoint=sys.argv[2])
with Subscriber(SubscriberConfig(sources=(source,), heartbeat_s=0.1, replay_timeout_s=60)) as subscriber:
    for item in subscriber:
        print(item.sequence if isinstance(item, Delivered) else item.reason, flush=True)
"""


def stop_until_given_up(process, monitor):
    """It tells the publisher's patience with its first ping, which may be yet to come. One that goes on after a stop
    may end the connection itself: only an end while it is stopped counts."""
    while True:
        while monitor.poll(100):
            recv_monitor_message(monitor)
        process.send_signal(signal.SIGSTOP)
        if monitor.poll(500):
            return
        process.send_signal(signal.SIGCONT)


def test_its_connection_is_given_up_and_it_catches_up_later():
    with Peer() as peer, ExitStack() as stack:
        monitor = peer.pub.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        stack.callback(monitor.close, linger=0)
        stack.callback(peer.pub.disable_monitor)
        command = [sys.executable, "-c", SUBSCRIBER, peer.endpoint, peer.replay_endpoint]
        process = stack.enter_context(subprocess.Popen(bound(command), stdout=subprocess.PIPE, text=True))
        stack.callback(process.kill)
        peer.await_subscriber()
        peer.send(0)
        assert process.stdout.readline() == "0\n"
        stop_until_given_up(process, monitor)
        for sequence in (1, 2):
            peer.send(sequence)
        process.send_signal(signal.SIGCONT)
        assert [process.stdout.readline() for _ in range(2)] == ["1\n", "2\n"]


def test_whoever_is_more_patient_than_zmq_can_say_is_heard_all_the_same():
    with Peer() as peer, subscriber(peer, heartbeat_s=60_000.0) as reader:
        peer.await_subscriber(reader)
        peer.send(0)
        assert told(take(reader, 1)) == [0]
