"""Replay: a bounded buffer of a publisher's last messages, and the requests for them.

The publisher sends answers in small parts between live messages, so that no client delays the live stream. A client
that does not read its answer loses it after a time limit.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

_MAX_REQUESTS_OF_CLIENT = 4
"""Requests of one client that may wait, so that one client cannot use up the bound of all."""

END_SEQUENCE = (1 << 64) - 1
"""The sequence number that ends an answer. No message has it."""


class Sent(Enum):
    """The result of sending one message to a client."""

    DONE = auto()
    LATER = auto()
    """The client's queue is full."""
    CLIENT_GONE = auto()


Send = Callable[[bytes, int, bytes], Sent]
"""Sends (client, sequence, payload) without waiting."""


class ReplayBuffer:
    """The newest messages, bounded by count and bytes: older ones go first."""

    def __init__(self, *, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._messages: deque[tuple[int, bytes]] = deque()
        self.first = 0
        """The index of the oldest message that is left, counted from the first message ever added."""
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def stop(self) -> int:
        """The index of the next message to be added."""
        return self.first + len(self._messages)

    def append(self, sequence: int, payload: bytes) -> None:
        self._messages.append((sequence, payload))
        self.num_bytes += len(payload)
        while len(self._messages) > self._max_messages or self.num_bytes > self._max_bytes:
            self.num_bytes -= len(self._messages.popleft()[1])
            self.first += 1

    def find(self, sequence: int) -> int:
        """The index of the first message whose number is `sequence` or higher."""
        return self.first + bisect_left(self._messages, sequence, key=lambda message: message[0])

    def at(self, index: int) -> tuple[int, bytes]:
        return self._messages[index - self.first]


@dataclass(slots=True, kw_only=True)
class _Request:
    index: int
    stop: int
    """An answer ends before messages that were published after the request; else it might never end."""
    give_up_at: float


class ReplayRequests:
    """The requests of all clients. Clients take turns; the requests of one client are answered in their order."""

    def __init__(self, buffer: ReplayBuffer, *, max_requests: int, patience_s: float) -> None:
        self._buffer = buffer
        self._max_requests = max_requests
        self._patience_s = patience_s
        self._of_clients: dict[bytes, deque[_Request]] = {}
        self._num_waiting = 0
        self.num_answered = 0
        self.num_refused = 0
        """Requests beyond the bound, and requests whose client did not read the answer."""
        self.num_messages = 0

    def __len__(self) -> int:
        return self._num_waiting

    def add(self, client: bytes, start: int, now: float) -> None:
        """Takes a request for all messages from sequence `start` on. Beyond the bound it is refused."""
        num_of_client = len(self._of_clients.get(client, ()))
        if self._num_waiting >= self._max_requests or num_of_client >= _MAX_REQUESTS_OF_CLIENT:
            self.num_refused += 1
            return
        request = _Request(index=self._buffer.find(start), stop=self._buffer.stop, give_up_at=now + self._patience_s)
        self._of_clients.setdefault(client, deque()).append(request)
        self._num_waiting += 1

    def serve(self, send: Send, *, max_messages: int, now: float) -> bool:
        """Sends some messages of each answer. False: none could be sent, so the caller waits before the next try."""
        has_sent = False
        for client in list(self._of_clients):
            has_sent |= self._serve_client(client, send, max(1, max_messages // len(self._of_clients)), now)
        return has_sent

    def _serve_client(self, client: bytes, send: Send, num_messages: int, now: float) -> bool:
        request = self._of_clients[client][0]
        has_sent = False
        for _ in range(num_messages):
            request.index = max(request.index, self._buffer.first)  # the client sees forgotten messages as a gap
            is_last = request.index >= request.stop
            sequence, payload = (END_SEQUENCE, b"") if is_last else self._buffer.at(request.index)
            match send(client, sequence, payload):
                case Sent.DONE:
                    has_sent = True
                    request.give_up_at = now + self._patience_s
                case Sent.LATER:
                    if now >= request.give_up_at:
                        self._forget(client)
                    break
                case Sent.CLIENT_GONE:
                    self._forget(client)
                    break
            if is_last:
                self.num_answered += 1
                self._finish(client)
                break
            request.index += 1
            self.num_messages += 1
        return has_sent

    def _finish(self, client: bytes) -> None:
        requests = self._of_clients[client]
        requests.popleft()
        self._num_waiting -= 1
        if not requests:
            del self._of_clients[client]

    def _forget(self, client: bytes) -> None:
        num_requests = len(self._of_clients.pop(client))
        self._num_waiting -= num_requests
        self.num_refused += num_requests
