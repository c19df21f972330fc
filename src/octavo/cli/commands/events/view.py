"""Events as lines to read, and as JSON."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from octavo.cli.output import printable_line
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
from octavo.units import counted

_HASHES_SHOWN = 3
_DIGITS_SHOWN = 8
_MOST_TIMESTAMP = 1e11
"""In the year 5138: larger numbers are not times."""


def lines(item: SubscriberItem, *, group: int | None, as_json: bool) -> Iterator[str]:
    """One line for a resync, a silence or its end, one for each event that concerns the group, and one for the end of a
    telling of all."""
    if not isinstance(item, Delivered):
        yield json.dumps(_state_fields(item)) if as_json else _state_line(item)
        return
    for event in item.batch.events:
        if group is None or isinstance(event, AllBlocksCleared) or event.group_idx == group:
            yield _event_json(item, event) if as_json else _event_line(item, event)
    if item.is_whole:
        since = item.batch.whole_since
        whole = {"type": "Whole", "topic": item.topic, "whole_since": since}
        yield json.dumps(whole) if as_json else f"WHOLE {_who(item)}: all that it holds has been told since #{since}"


def _event_line(item: Delivered, event: AnyEvent) -> str:
    rank = item.batch.data_parallel_rank
    head = f"{_time(item.batch.ts)}  {_name(item.topic, rank)}#{item.sequence:<6}"
    match event:
        case AllBlocksCleared():
            return f"{head}  cleared  all blocks"
        case BlockStored():
            size = f" of {event.block_size}" if event.block_size else ""
            tokens = f", {counted(len(event.token_ids), 'token')}" if event.token_ids else ""
            parent = "" if event.parent_block_hash is None else f"  after {_short(event.parent_block_hash)}"
            what = f"stored   {_place(event)}  {counted(len(event.block_hashes), 'block')}{size}{tokens}"
            return f"{head}  {what}  {_hashes(event.block_hashes)}{parent}"
        case BlockRemoved():
            what = f"removed  {_place(event)}  {counted(len(event.block_hashes), 'block')}"
            return f"{head}  {what}  {_hashes(event.block_hashes)}"


def _place(event: BlockStored | BlockRemoved) -> str:
    group = "no group" if event.group_idx is None else f"group {event.group_idx}"
    kind = ""
    if isinstance(event, BlockStored) and event.kv_cache_spec_kind:
        window = event.kv_cache_spec_sliding_window
        kind = f" {printable_line(event.kv_cache_spec_kind)}" + ("" if window is None else f"({window})")
    return f"{group}{kind}  {printable_line(event.medium or 'no medium')}"


def _state_line(item: Resync | Silence | Heard) -> str:
    match item:
        case Resync():
            got = "" if item.got is None else f", got #{item.got}"
            after = "what follows is complete" if item.is_from_start else "its state is unknown"
            where = f" of {printable_line(item.topic)}" if item.topic else ""
            return f"RESYNC{where}: {item.reason.value}, expected #{item.expected}{got}; {after}"
        case Silence():
            why = "it has ended, hangs, or cannot be reached"
            return f"SILENCE of {_who(item)}: nothing for {item.silent_s:.0f} s; {why}"
        case Heard():
            return f"HEARD {_who(item)} again; it has nothing new to tell"


def _state_fields(item: Resync | Silence | Heard) -> dict[str, Any]:
    fields = {"type": type(item).__name__, "topic": item.topic}
    match item:
        case Resync():
            told = {"reason": item.reason.value, "expected": item.expected, "got": item.got}
            return fields | told | {"is_from_start": item.is_from_start}
        case Silence():
            return fields | {"silent_s": round(item.silent_s, 1)}
        case Heard():
            return fields


def _who(item: Silence | Heard | Delivered) -> str:
    return printable_line(item.topic) if item.topic else item.endpoint


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


def _hashes(hashes: list[ExternalHash]) -> str:
    shown = " ".join(map(_short, hashes[:_HASHES_SHOWN]))
    return shown + (" ..." if len(hashes) > _HASHES_SHOWN else "")


def _short(block_hash: ExternalHash) -> str:
    digits = block_hash.hex() if isinstance(block_hash, bytes) else f"{block_hash:016x}"
    return digits[:_DIGITS_SHOWN]


def _name(topic: str, rank: int | None) -> str:
    return (f"{printable_line(topic)} " if topic else "") + (f"rank {rank} " if rank else "")


def _time(timestamp: float) -> str:
    if not 0 <= timestamp < _MOST_TIMESTAMP:
        return f"{timestamp:.3f}"
    return datetime.fromtimestamp(timestamp).astimezone().strftime("%H:%M:%S.%f")[:-3]


def _hex(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
