"""Sends recorded messages to subscribers, as fast as they read."""

from types import TracebackType
from typing import Self

import zmq

from octavo.cli.commands.events.recorded import Recorded
from octavo.errors import InputError
from octavo.events import check_endpoint, encode_sequence, new_context, open_endpoint

_MAX_FRAME_FROM_PEER_BYTES = 4096


class RecordSender:
    """A publishing socket that loses nothing: it waits for subscribers, and gives up on one that does not read."""

    def __init__(self, endpoint: str, *, bind: bool, timeout_s: float) -> None:
        self._timeout_ms = max(1, round(1000 * timeout_s))
        self._context = new_context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.XPUB_NODROP, 1)
        self._socket.setsockopt(zmq.SNDTIMEO, self._timeout_ms)
        try:
            self.endpoint = open_endpoint(
                self._socket,
                check_endpoint(endpoint),
                bind=bind,
                max_frame_bytes=_MAX_FRAME_FROM_PEER_BYTES,
                linger_s=timeout_s,
            )
        except InputError:
            self._context.destroy(linger=0)
            raise

    def wait_for_subscriber(self) -> None:
        """Raises InputError if no subscriber comes."""
        if not self._socket.poll(self._timeout_ms):
            raise InputError(f"nobody subscribed at {self.endpoint} within {self._timeout_ms / 1000:g} s")

    def send(self, message: Recorded) -> None:
        try:
            self._socket.send_multipart((message.topic.encode(), encode_sequence(message.sequence), message.payload))
        except zmq.Again:
            raise InputError(f"a subscriber at {self.endpoint} does not read") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.destroy(linger=self._timeout_ms if kind is None else 0)
