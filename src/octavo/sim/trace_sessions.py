"""Traces of sessions: each record is one session of an agent, with times since its own beginning.

    {"id": "x", "block_size": 64, "hash_id_scope": "local", "requests": [
        {"t": 0.0, "in": 16564, "out": 244, "hash_ids": [1, 2, ...]},
        {"t": 134.2, "type": "subagent", "requests": [{"t": 0.0, ...}, ...]},
        ...]}

A subagent's requests have times since its own beginning, or as the session's own requests have them. Ids are of whole
blocks; the last, short block of a prompt may have one or none. They are the session's own, unless the
scope is "global". When the sessions began is not told. So some are open at once, and the next begins when one ends.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain

import numpy as np

from octavo.settings import shown
from octavo.sim.trace_records import TraceRecord, record_of
from octavo.sim.traces import BlockIds, TraceRequest
from octavo.units import counted

OPEN_SESSIONS = 16
_MOST_NESTED = 16
"""Subagents of subagents. Those that are known have one level."""


def read_sessions(
    first: TraceRecord, others: Iterator[TraceRecord], block_tokens: int | None, open_sessions: int
) -> Iterator[TraceRequest]:
    """The requests of all sessions, session by session."""
    size = first.count("block_size", least=1)
    if block_tokens not in (None, size):
        raise first.wrong(f"the session has blocks of {counted(size, 'token')}, not {block_tokens} (--trace-block)")
    ends: list[float] = []
    known = BlockIds()
    for number, session in enumerate(chain([first], others), start=1):
        own_size = session.count("block_size", least=1)
        if own_size != size:
            raise session.wrong(f"the session has blocks of {counted(own_size, 'token')}, and the first one of {size}")
        if session.fields.get("hash_id_scope") != "global":
            known.forget_names()
        begins = heappop(ends) if len(ends) == open_sessions else 0.0
        asked = _timed([*_requests_of(session, 0.0, depth=0)])
        for since, record in asked:
            yield TraceRequest(
                arrival_s=begins + since,
                num_prompt_tokens=record.count("in", least=1),
                num_output_tokens=record.count("out", least=0),
                block_ids=np.array(_ids_of(record, size, known), dtype=np.int32),
                block_tokens=size,
                knows_output=False,
                session=session.name("id") or str(number),
                place=record.place,
            )
        heappush(ends, begins + max([since for since, _ in asked], default=0.0))


def _timed(asked: list[tuple[float, TraceRecord]]) -> list[tuple[float, TraceRecord]]:
    """Requests with their times since the session's beginning, given those at which their subagents began. Some traces
    (SemiAnalysis's) tell these times as they are: then no request of a subagent is before it."""
    is_told = all(record.number("t") >= begins for begins, record in asked)
    return [(record.number("t") + (0.0 if is_told else begins), record) for begins, record in asked]


def _requests_of(record: TraceRecord, begins: float, depth: int) -> Iterator[tuple[float, TraceRecord]]:
    """The requests of a session or subagent, each with the time at which its subagent began."""
    requests = record.fields.get("requests")
    if not isinstance(requests, list):
        raise record.wrong(f"requests must be a list, not {shown(requests)}")
    if depth > _MOST_NESTED:
        raise record.wrong(f"subagents are nested more than {_MOST_NESTED} deep")
    for number, value in enumerate(requests, start=1):
        request = record_of(f"{record.place}, request {number}", value)
        if "requests" in request.fields:
            yield from _requests_of(request, begins + request.number("t"), depth + 1)
        else:
            yield begins, request


def _ids_of(record: TraceRecord, size: int, known: BlockIds) -> list[int]:
    prompt = record.count("in", least=1)
    ids = record.ids("hash_ids")
    block_ids = known.find_of_prompt(ids, prompt, size)
    if block_ids is None:
        raise record.wrong(
            f"an input of {counted(prompt, 'token')} takes {counted(-(-prompt // size), 'block')} of {size}, but "
            f"hash_ids has {len(ids)}"
        )
    return block_ids
