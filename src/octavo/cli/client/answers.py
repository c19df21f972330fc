"""What servers of any make answer: refusals, whole bodies, and streams of events. All of it is read within bounds."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import msgspec

from octavo.errors import MALFORMED, InputError, why_not_read

_MOST_BYTES = 16 << 20
"""The longest body, and the longest event of a stream."""
_MOST_STREAM_BYTES = 256 << 20
_MOST_EVENTS = 1 << 20
"""The most events of an answer whose length nobody has bounded."""
_EVENTS_PER_TOKEN = 2
_OTHER_EVENTS = 1000
"""Events without tokens, such as the first one, the usage, and signs of life."""
_MOST_ERROR_CHARS = 300
_DATA = b"data:"
_DONE = b"[DONE]"


def read_body(response: httpx.Response) -> bytes:
    """The body. Raises InputError if it is too long, or if the answer is no success."""
    body = bytearray()
    for piece in response.iter_bytes():
        body += piece
        if len(body) > _MOST_BYTES:
            break
    return _checked(response, bytes(body))


async def read_body_async(response: httpx.Response) -> bytes:
    """The same, asynchronously."""
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > _MOST_BYTES:
            break
    return _checked(response, bytes(body))


def events(response: httpx.Response, *, most_tokens: int | None) -> Iterator[dict[str, Any]]:
    """The messages of a stream; `most_tokens` is the length that was asked for. Raises InputError if the answer is a
    refusal or no stream, if it breaks off, and if it is too long."""
    if not response.is_success:
        read_body(response)
    stream = _Stream(most_tokens)
    for piece in response.iter_bytes():
        yield from stream.take(piece)
    yield from stream.end()


async def events_async(response: httpx.Response, *, most_tokens: int | None) -> AsyncIterator[dict[str, Any]]:
    """The same, asynchronously."""
    if not response.is_success:
        await read_body_async(response)
    stream = _Stream(most_tokens)
    async for piece in response.aiter_bytes():
        for message in stream.take(piece):
            yield message
    for message in stream.end():
        yield message


def _checked(response: httpx.Response, body: bytes) -> bytes:
    if response.is_redirect:
        where = response.headers.get("location", "elsewhere")
        raise InputError(f"{response.status_code}: it sends requests to {where[:_MOST_ERROR_CHARS]}: give that address")
    if not response.is_success:
        raise InputError(f"{response.status_code}: {_message_in(body)}")
    if len(body) > _MOST_BYTES:
        raise InputError(f"{response.status_code} with more than {_MOST_BYTES:,} bytes")
    return body


def _message_in(body: bytes) -> str:
    try:
        message = msgspec.json.decode(body)["error"]["message"]
    except (*MALFORMED, LookupError, TypeError):
        message = body[: 4 * _MOST_ERROR_CHARS].decode(errors="replace")
    return str(message)[:_MOST_ERROR_CHARS]


class _Stream:
    """Cuts the bytes of a stream into messages. They are UTF-8, whatever charset the server names."""

    def __init__(self, most_tokens: int | None) -> None:
        self._most_events = _MOST_EVENTS if most_tokens is None else _EVENTS_PER_TOKEN * most_tokens + _OTHER_EVENTS
        self._num_events = 0
        self._num_bytes = 0
        self._line = bytearray()
        self._is_whole = False

    def take(self, piece: bytes) -> Iterator[dict[str, Any]]:
        """The messages that the piece completes."""
        self._num_bytes += len(piece)
        if self._num_bytes > _MOST_STREAM_BYTES:
            raise InputError(f"the server sent {_MOST_STREAM_BYTES:,} bytes, and the answer has not ended")
        first, *others = piece.split(b"\n")
        self._line += first
        if len(self._line) > _MOST_BYTES:
            raise InputError(f"the server sent a line of more than {_MOST_BYTES:,} bytes")
        for other in others:
            yield from self._parse(bytes(self._line))
            self._line = bytearray(other)

    def end(self) -> Iterator[dict[str, Any]]:
        """The message in a last line without an end. Raises InputError if the stream is none, or broke off."""
        yield from self._parse(bytes(self._line))
        if not self._num_events:
            raise InputError("the server's answer is no stream of events: is this address that of OpenAI's API?")
        if not self._is_whole:
            raise InputError("the server's answer broke off")

    def _parse(self, line: bytes) -> Iterator[dict[str, Any]]:
        if not line.startswith(_DATA):
            return
        self._num_events += 1
        if self._num_events > self._most_events:
            raise InputError(f"the server sent {self._most_events:,} events, and the answer has not ended")
        data = line[len(_DATA) :].strip()
        if data == _DONE:
            self._is_whole = True
            return
        try:
            message = msgspec.json.decode(data.decode(errors="replace"))
        except MALFORMED as error:
            raise InputError(f"the server sent an event that {why_not_read(error, data)}") from None
        if not isinstance(message, dict):
            raise InputError("the server sent an event that is not an object")
        if (trouble := message.get("error")) is not None:
            told = trouble.get("message") if isinstance(trouble, dict) else trouble
            raise InputError(f"the server gave up: {str(told)[:_MOST_ERROR_CHARS]}")
        self._is_whole |= _has_ended(message)
        yield message


def _has_ended(message: dict[str, Any]) -> bool:
    """Some servers end a stream without [DONE], but not without a reason."""
    try:
        return message["choices"][0]["finish_reason"] is not None
    except (LookupError, TypeError):
        return False
