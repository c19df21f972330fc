"""What servers of any make answer: refusals, whole bodies, and streams of events. All of it is read within bounds."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import msgspec

from octavo.errors import MALFORMED, InputError, why_not_read

_MOST_BYTES = 16 << 20
"""Of a body, and of one event."""
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


def events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The messages of a stream. Raises InputError if it is a refusal, or does not end as a stream of OpenAI's does."""
    if not response.is_success:
        read_body(response)
    stream = _Stream()
    for piece in response.iter_bytes():
        yield from stream.take(piece)
    yield from stream.end()


async def events_async(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The same, asynchronously."""
    if not response.is_success:
        await read_body_async(response)
    stream = _Stream()
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
    """The bytes of a stream, cut into messages. They are UTF-8, whatever charset the server names."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._has_event = False
        self._is_whole = False

    def take(self, piece: bytes) -> Iterator[dict[str, Any]]:
        """The messages that the piece completes."""
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
        if not self._has_event:
            raise InputError("the server's answer is no stream of events: is this address that of OpenAI's API?")
        if not self._is_whole:
            raise InputError("the server's answer broke off")

    def _parse(self, line: bytes) -> Iterator[dict[str, Any]]:
        if not line.startswith(_DATA):
            return
        self._has_event = True
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
