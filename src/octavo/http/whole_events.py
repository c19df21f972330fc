"""`whole_events`: the server-sent events of another server's answer, none of them by half.

An answer may break off within an event. What is said after that, such as why, would be read as the rest of that event:
clients would find no JSON in it, or after `da` no field that they know, and take the answer for one that ended well.
"""

from collections.abc import AsyncIterator

EVENT_STREAM = "text/event-stream"
_ENDS = (b"\n\n", b"\n\r\n", b"\r\r")
"""An event ends with an empty line."""
_LONGEST_END = max(map(len, _ENDS))
_MOST_HELD_BYTES = 1 << 20
"""Of an event that is longer, what has come goes on: memory is bounded."""


async def whole_events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, cut where events end. Where they break off, the beginning of an event is left out; where they
    end, nothing is."""
    held = bytearray()
    async for piece in pieces:
        if not held and ends_event(piece):
            yield piece
            continue
        unseen = max(0, len(held) - _LONGEST_END + 1)
        held += piece
        end = len(held) if len(held) > _MOST_HELD_BYTES else _last_end(held, unseen)
        if end:
            yield bytes(held[:end])
            del held[:end]
    if held:
        yield bytes(held)


def is_event_stream(content_type: str) -> bool:
    """Whether an answer of this type has events; upper and lower case are the same."""
    return content_type.lower().startswith(EVENT_STREAM)


def ends_event(piece: bytes) -> bool:
    return piece.endswith(_ENDS)


def _last_end(held: bytearray, start: int) -> int:
    """Where the last whole event ends; 0 if none does behind `start`."""
    return max(at + len(end) if (at := held.rfind(end, start)) >= 0 else 0 for end in _ENDS)
