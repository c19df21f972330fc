"""Events as lines to read, and as JSON."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from octavo.events import (
    AllBlocksCleared,
    AnyEvent,
    BlockRemoved,
    BlockStored,
    Delivered,
    ExternalHash,
    Heard,
    Resync,
    Silence,
    SubscriberItem,
)

_HASHES_SHOWN = 3
_DIGITS_SHOWN = 8
_MOST_TIMESTAMP = 1e11
"""In the year 5138: larger numbers are not times."""


def lines(item: SubscriberItem, *, group: int | None, as_json: bool) -> Iterator[str]:
    """One line for a resync, a silence or its end, one for each event that concerns the group, and one for the end of a
    telling of all."""
    if isinstance(item, Resync):
        yield _resync_json(item) if as_json else _resync_line(item)
        return
    if isinstance(item, Silence):
        yield _silence_json(item) if as_json else _silence_line(item)
        return
    if isinstance(item, Heard):
        yield _heard_json(item) if as_json else _heard_line(item)
        return
    for event in item.batch.events:
        if group is None or isinstance(event, AllBlocksCleared) or event.group_idx == group:
            yield _event_json(item, event) if as_json else _event_line(item, event)
    if item.is_whole:
        yield _whole_json(item) if as_json else _whole_line(item)


def _event_line(item: Delivered, event: AnyEvent) -> str:
    rank = item.batch.data_parallel_rank
    head = f"{_time(item.batch.ts)}  {_name(item.topic, rank)}#{item.sequence:<6}"
    match event:
        case AllBlocksCleared():
            return f"{head}  cleared  all blocks"
        case BlockStored():
            size = f" of {event.block_size}" if event.block_size else ""
            tokens = f", {_count(len(event.token_ids), 'token')}" if event.token_ids else ""
            parent = "" if event.parent_block_hash is None else f"  after {_short(event.parent_block_hash)}"
            what = f"stored   {_place(event)}  {_count(len(event.block_hashes), 'block')}{size}{tokens}"
            return f"{head}  {what}  {_hashes(event.block_hashes)}{parent}"
        case BlockRemoved():
            what = f"removed  {_place(event)}  {_count(len(event.block_hashes), 'block')}"
            return f"{head}  {what}  {_hashes(event.block_hashes)}"


def _place(event: BlockStored | BlockRemoved) -> str:
    group = "no group" if event.group_idx is None else f"group {event.group_idx}"
    kind = ""
    if isinstance(event, BlockStored) and event.kv_cache_spec_kind:
        window = event.kv_cache_spec_sliding_window
        kind = f" {_printable(event.kv_cache_spec_kind)}" + ("" if window is None else f"({window})")
    return f"{group}{kind}  {_printable(event.medium or 'no medium')}"


def _resync_line(item: Resync) -> str:
    got = "" if item.got is None else f", got #{item.got}"
    after = "what follows is complete" if item.is_from_start else "its state is unknown"
    where = f" of {_printable(item.topic)}" if item.topic else ""
    return f"RESYNC{where}: {item.reason.value}, expected #{item.expected}{got}; {after}"


def _silence_line(item: Silence) -> str:
    return f"SILENCE of {_who(item)}: nothing for {item.silent_s:.0f} s; it has ended, hangs, or cannot be reached"


def _silence_json(item: Silence) -> str:
    return json.dumps({"type": "Silence", "topic": item.topic, "silent_s": round(item.silent_s, 1)})


def _heard_line(item: Heard) -> str:
    return f"HEARD {_who(item)} again; it has nothing new to tell"


def _heard_json(item: Heard) -> str:
    return json.dumps({"type": "Heard", "topic": item.topic})


def _whole_line(item: Delivered) -> str:
    return f"WHOLE {_who(item)}: all that it holds has been told since #{item.batch.whole_since}"


def _whole_json(item: Delivered) -> str:
    return json.dumps({"type": "Whole", "topic": item.topic, "whole_since": item.batch.whole_since})


def _who(item: Silence | Heard | Delivered) -> str:
    return _printable(item.topic) if item.topic else item.endpoint


def _event_json(item: Delivered, event: AnyEvent) -> str:
    fields: dict[str, Any] = {
        "ts": item.batch.ts,
        "topic": item.topic,
        "sequence": item.sequence,
        "data_parallel_rank": item.batch.data_parallel_rank,
        "type": type(event).__name__,
    }
    fields |= {name: getattr(event, name) for name in event.__struct_fields__}
    return json.dumps(fields, default=_hex)


def _resync_json(item: Resync) -> str:
    return json.dumps(
        {
            "type": "Resync",
            "topic": item.topic,
            "reason": item.reason.value,
            "expected": item.expected,
            "got": item.got,
            "is_from_start": item.is_from_start,
        }
    )


def _hashes(hashes: list[ExternalHash]) -> str:
    shown = " ".join(map(_short, hashes[:_HASHES_SHOWN]))
    return shown + (" ..." if len(hashes) > _HASHES_SHOWN else "")


def _short(block_hash: ExternalHash) -> str:
    digits = block_hash.hex() if isinstance(block_hash, bytes) else f"{block_hash:016x}"
    return digits[:_DIGITS_SHOWN]


def _name(topic: str, rank: int | None) -> str:
    return (f"{_printable(topic)} " if topic else "") + (f"rank {rank} " if rank else "")


def _printable(text: str) -> str:
    """The text with "?" for control characters: a publisher must not command the terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _time(timestamp: float) -> str:
    if not 0 <= timestamp < _MOST_TIMESTAMP:
        return f"{timestamp:.3f}"
    return datetime.fromtimestamp(timestamp).astimezone().strftime("%H:%M:%S.%f")[:-3]


def _hex(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
