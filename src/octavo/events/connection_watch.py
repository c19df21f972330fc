"""`ConnectionWatch`: notices the connections that a socket gets and loses, and connects again where ZMQ does not."""

import contextlib
import logging
from enum import Enum, auto
from itertools import count
from typing import Protocol

import zmq
from zmq.utils.monitor import recv_monitor_message

from octavo.events.sockets import Socket, can_read

_logger = logging.getLogger(__name__)

_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED | _REFUSED
_WRONG_KEYS = "%s and this subscriber do not accept each other's keys"
_CUT_SHORT = (
    "%s ends connections before they are ready: it asks for keys that this subscriber has not, or something between "
    "cuts them off"
)
_numbers = count()
_GIVEN_UP_S = 0.2
"""ZMQ connects again at once after a lost connection, but never to a peer that broke its protocol. If ZMQ has not
tried within this time, the watch connects by itself."""


class _MakesSockets(Protocol):
    """A context, or a part of one."""

    def socket(self, kind: int, /) -> Socket: ...


class NewConnection(Enum):
    """A connection that a look has found."""

    FIRST = auto()
    AFTER_LOSS = auto()


class ConnectionWatch:
    """Watches one socket. Make it before the socket is opened, and call `opened` afterwards."""

    def __init__(self, context: _MakesSockets, socket: Socket, *, is_bound: bool) -> None:
        self._socket = socket
        self._is_bound = is_bound
        self._endpoint = ""
        self._was_connected = self._was_lost = self._was_refused = False
        self.reconnect_at: float | None = None
        """When `look` connects by itself."""
        self.lost_at: float | None = None
        """Since when there is no connection, where there was one. Of a socket that is bound nobody knows whose."""
        self.monitor: Socket = context.socket(zmq.PAIR)
        self.monitor.setsockopt(zmq.RCVHWM, 0)  # or ZMQ's own thread would wait for it to be read
        address = f"inproc://octavo-monitor-{next(_numbers)}"  # ZMQ frees it some time after the socket was closed
        socket.monitor(address, _EVENTS)
        self.monitor.connect(address)

    def opened(self, endpoint: str) -> None:
        """The socket was bound or connected."""
        self._endpoint = endpoint

    def look(self, now: float) -> NewConnection | None:
        """The last connection that was made since the last look, if any, though it may be lost again."""
        found = None
        while can_read(self.monitor):
            event = recv_monitor_message(self.monitor, zmq.NOBLOCK)["event"]
            found = self._note(event, now) or found
        if self.reconnect_at is not None and now >= self.reconnect_at:
            self.reconnect_at = None
            with contextlib.suppress(zmq.ZMQError):
                self._socket.disconnect(self._endpoint)
            self._socket.connect(self._endpoint)
        return found

    def close(self) -> None:
        self._socket.disable_monitor()
        self.monitor.close(linger=0)

    def _note(self, event: int, now: float) -> NewConnection | None:
        """Returns the connection that this event tells of, if it is new."""
        if event & _REFUSED and not self._was_refused:
            self._was_refused = True
            _logger.warning(_WRONG_KEYS if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH else _CUT_SHORT, self._endpoint)
        if event == zmq.EVENT_DISCONNECTED:
            self._was_lost = True
            if not self._is_bound:
                self.reconnect_at = now + _GIVEN_UP_S
                self.lost_at = self.lost_at or now
            return None
        self.reconnect_at = None
        if event != zmq.EVENT_HANDSHAKE_SUCCEEDED:
            return None
        was_connected, was_lost = self._was_connected, self._was_lost
        self._was_connected, self._was_lost, self._was_refused, self.lost_at = True, False, False, None
        if was_lost:
            return NewConnection.AFTER_LOSS
        return None if was_connected else NewConnection.FIRST
