"""`TurnItems`: what an answer of `/v1/responses` consists of: thoughts, messages and calls of functions, in order.

An item is opened when its first text comes, and closed when another one begins or the answer ends:

    reasoning        output_item.added, content_part.added, reasoning_text.delta ..., reasoning_text.done,
                     content_part.done, output_item.done
    message          output_item.added, content_part.added, output_text.delta ..., output_text.done, content_part.done,
                     output_item.done
    function_call    output_item.added, function_call_arguments.delta ..., function_call_arguments.done,
                     output_item.done
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from octavo.server.answers import new_request_id
from octavo.server.tools import AnswerReader, CallPiece, End, Words

Event = tuple[str, dict[str, Any]]
"""Its name, and what it tells."""


@dataclass(slots=True, kw_only=True)
class _Item:
    item_id: str
    text: str = ""
    """The words that are said or thought, or a call's arguments."""
    call: CallPiece | None = None
    """The first piece of a call, which names it; None: words."""
    is_thought: bool = False
    status: str = "in_progress"


class TurnItems:
    """The items of one answer."""

    def __init__(self, reader: AnswerReader | None) -> None:
        """Without a reader, all text counts as said."""
        self._reader = reader
        self._items: list[_Item] = []

    def add(self, text: str) -> Iterator[Event]:
        """More of the answer."""
        if self._reader is not None:
            yield from self._take(self._reader.push(text).parts)
        elif text:
            yield from self._take([Words(text=text)])

    def end(self, status: str, end: End) -> Iterator[Event]:
        """Ends the answer. It has at least one item, which may be empty."""
        is_whole = status != "failed"
        if self._reader is not None:
            yield from self._take(self._reader.flush(end).parts)
            is_whole &= not (self._reader.ends_within_call and self._items and self._items[-1].call is not None)
        if not self._items:
            yield from self._open(_words())
        yield from self._close(status if is_whole else "incomplete")  # items have no other word for it

    def told(self) -> list[dict[str, Any]]:
        """All items, as they are now."""
        return [_told(item) for item in self._items]

    def _take(self, parts: Iterable[Words | CallPiece]) -> Iterator[Event]:
        for part in parts:
            if isinstance(part, Words):
                last = self._items[-1] if self._items else None
                if last is None or last.call is not None or last.is_thought is not part.is_thought:
                    yield from self._close("completed")
                    yield from self._open(_words(is_thought=part.is_thought))
                yield self._grow_words(part)
                continue
            if part.call_id is not None:
                yield from self._close("completed")
                yield from self._open(_Item(item_id=new_request_id("fc"), call=part))
            if part.arguments:
                yield self._grow("function_call_arguments.delta", part.arguments)

    def _grow_words(self, words: Words) -> Event:
        if words.is_thought:
            return self._grow("reasoning_text.delta", words.text, content_index=0)
        return self._grow("output_text.delta", words.text, content_index=0, logprobs=[])

    def _grow(self, kind: str, text: str, **fields: Any) -> Event:
        self._items[-1].text += text
        return kind, {**self._where(), **fields, "delta": text}

    def _open(self, item: _Item) -> Iterator[Event]:
        self._items.append(item)
        yield "output_item.added", {"output_index": len(self._items) - 1, "item": _told(item)}
        if item.call is None:
            yield "content_part.added", {**self._where(), "content_index": 0, "part": _part(item, "")}

    def _close(self, status: str) -> Iterator[Event]:
        """The last item, if there is one."""
        if not self._items:
            return
        item, where = self._items[-1], self._where()
        item.status = status
        if item.call is None:
            words = {**where, "content_index": 0, "text": item.text}
            yield ("reasoning_text.done", words) if item.is_thought else ("output_text.done", {**words, "logprobs": []})
            yield "content_part.done", {**where, "content_index": 0, "part": _part(item, item.text)}
        else:
            yield "function_call_arguments.done", {**where, "name": item.call.name, "arguments": item.text}
        yield "output_item.done", {"output_index": where["output_index"], "item": _told(item)}

    def _where(self) -> dict[str, Any]:
        return {"item_id": self._items[-1].item_id, "output_index": len(self._items) - 1}


def _words(*, is_thought: bool = False) -> _Item:
    return _Item(item_id=new_request_id("rs" if is_thought else "msg"), is_thought=is_thought)


def _told(item: _Item) -> dict[str, Any]:
    told: dict[str, Any] = {"id": item.item_id, "status": item.status}
    if item.call is not None:
        call = {"call_id": item.call.call_id, "name": item.call.name, "arguments": item.text}
        return {**told, "type": "function_call", **call}
    parts = [_part(item, item.text)] if item.status != "in_progress" else []
    if item.is_thought:
        return {**told, "type": "reasoning", "summary": [], "content": parts}
    return {**told, "type": "message", "role": "assistant", "content": parts}


def _part(item: _Item, text: str) -> dict[str, Any]:
    if item.is_thought:
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
