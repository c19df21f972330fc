"""The forms of traces that are read, told apart by their first record.

One JSON object a line, or all of them in one JSON list; a folder of such files is one trace.

    hash ids        {"timestamp": 27, "input_length": 1100, "output_length": 50, "hash_ids": [0, 1, 2]}
                    Mooncake's (milliseconds, blocks of 512 tokens; in Dynamo's words also "created_time",
                    "input_tokens" and "output_tokens") and Qwen-Bailian's (seconds, blocks of 16; known by "chat_id",
                    which names a request; "parent_chat_id" names the one that it goes on with)
    sessions        {"id": "x", "block_size": 64, "requests": [{"t": 0.5, "in": 130, "out": 9, "hash_ids": [1, 2]}]}
                    those of agents that write programs (`trace_sessions`)
    texts           {"id": "x", "conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}
                    {"messages": [{"role": "user", "content": "..."}], "output_length": 50, "timestamp": 2000}
                    conversations and prompts (`trace_texts`)
    recordings      of an engine (`octavo serve --record`): the first line names the version and the block size
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from octavo.errors import InputError
from octavo.recording import RECORDING_KEY, RECORDING_VERSION
from octavo.settings import shown
from octavo.sim.trace_records import BadRecordError, TraceRecord, read_records
from octavo.sim.trace_sessions import OPEN_SESSIONS, read_sessions
from octavo.sim.trace_texts import PROMPTS, TURNS, read_texts
from octavo.sim.trace_times import TIMES, Times
from octavo.sim.traces import BlockIds, Trace, TraceRequest
from octavo.units import counted

MOONCAKE_BLOCK_TOKENS = 512
BAILIAN_BLOCK_TOKENS = 16

_WRAPPED = ("body", "payload")
"""Where files of whole API calls have what was asked."""
_MOST_KEYS, _LONGEST_KEY = 8, 40
"""What is named of a record that is no request."""


def read_trace(
    path: Path,
    *,
    block_tokens: int | None = None,
    most_requests: int | None = None,
    max_model_len: int | None = None,
    open_sessions: int | None = None,
) -> Trace:
    """Reads a trace. `block_tokens`: its ids' block size, if the file does not tell it and the usual one is wrong.
    `max_model_len`: longer requests are refused, as an engine does. `open_sessions`: how many sessions go on at once,
    in a trace of sessions."""
    what = f"trace {str(path)!r}"
    try:
        records = read_records(path, may_be_cut_off=lambda first: RECORDING_KEY in first)
        requests = _read(records, block_tokens, open_sessions, most_requests)
    except BadRecordError as error:
        raise InputError(f"{what}, {error}") from None
    except InputError as error:
        raise InputError(f"{what} {error}") from None
    requests.sort(key=lambda request: request.arrival_s)
    requests = requests[:most_requests]
    served = [request for request in requests if max_model_len is None or request.num_tokens <= max_model_len]
    if not served:
        shortest = min(request.num_tokens for request in requests)
        raise InputError(
            f"{what} has no request that short: the shortest has {counted(shortest, 'token')} (--max-model-len)"
        )
    num_refused = len(requests) - len(served)
    return Trace(requests=served, block_tokens=served[0].block_tokens, num_refused=num_refused)


def _read(
    records: Iterator[TraceRecord], block_tokens: int | None, open_sessions: int | None, most_requests: int | None
) -> list[TraceRequest]:
    records = map(_unwrapped, records)
    first = next(records, None)
    if first is None:
        raise InputError("has no requests")
    num_open = open_sessions or OPEN_SESSIONS
    if open_sessions is not None and not first.fields.keys() & {"requests", *TURNS}:
        raise InputError("has no sessions, but requests with times of their own (--sessions)")
    if RECORDING_KEY in first.fields:
        requests = list(_read_recording(first, records, block_tokens))
    elif "hash_ids" in first.fields:
        requests = list(_read_hash_ids(first, records, block_tokens))
    elif first.fields.keys() & {*TURNS, *PROMPTS}:
        requests = list(read_texts(first, records, open_sessions=num_open, most_requests=most_requests))
    elif "requests" in first.fields:
        requests = list(read_sessions(first, records, block_tokens, num_open))
    else:
        raise _no_request(first)
    if not requests:
        raise InputError("has no requests")
    return requests


def _unwrapped(record: TraceRecord) -> TraceRecord:
    """A record with what was asked, where it is inside the call of an API."""
    asked = next((record.fields[key] for key in _WRAPPED if isinstance(record.fields.get(key), dict)), None)
    return record if asked is None else replace(record, fields={**record.fields, **asked})


def _no_request(first: TraceRecord) -> BadRecordError:
    keys = sorted(map(str, first.fields))
    named = ", ".join(key[:_LONGEST_KEY] for key in keys[:_MOST_KEYS]) + (", ..." if len(keys) > _MOST_KEYS else "")
    if any("length" in key or "tokens" in key or key.endswith("_lens") for key in keys):
        named += ", and lengths do not tell what requests share"
    return first.wrong(
        f"it has {named or 'nothing'}; a trace has hash_ids, sessions with requests, conversations, messages or "
        "prompts, or is a recording of octavo's"
    )


def _read_hash_ids(
    first: TraceRecord, others: Iterator[TraceRecord], block_tokens: int | None
) -> Iterator[TraceRequest]:
    is_bailian = "chat_id" in first.fields
    size = block_tokens or (BAILIAN_BLOCK_TOKENS if is_bailian else MOONCAKE_BLOCK_TOKENS)
    times = Times(1.0 if is_bailian else first.time_units_per_s(first.first_of(*TIMES)))
    known = BlockIds()
    session_of: dict[str, str] = {}
    """By the name of a request: the name of the first one of its conversation."""
    for record in chain([first], others):
        length = record.first_of("input_length", "input_tokens")
        prompt = record.count(length, least=1)
        ids = record.ids("hash_ids")
        block_ids = known.find_of_prompt(ids, prompt, size)
        if block_ids is None:
            raise record.wrong(
                f"an {length} of {prompt} takes {counted(-(-prompt // size), 'block')} of {size}, but hash_ids has "
                f"{len(ids)}; if the trace has blocks of another size{_such_as(prompt, len(ids))}, say so "
                "(--trace-block)"
            )
        request = TraceRequest(
            arrival_s=0.0,
            num_prompt_tokens=prompt,
            num_output_tokens=record.count(record.first_of("output_length", "output_tokens"), least=0),
            block_ids=np.array(block_ids, dtype=np.int32),
            block_tokens=size,
            knows_output=False,
            session=_session(record, session_of),
            place=record.place,
        )
        yield times.timed(request, record)


def _such_as(prompt: int, num_ids: int) -> str:
    """A size that fits a prompt, for a person to try: a power of two."""
    sizes = (1 << power for power in range(1, prompt.bit_length()))
    fitting = next((size for size in sizes if num_ids in (prompt // size, -(-prompt // size))), None)
    return "" if fitting is None else f", such as {fitting}"


def _session(record: TraceRecord, session_of: dict[str, str]) -> str:
    """The conversation of a request that has a name, and may name the request that it goes on with (-1 if none)."""
    own, parent = record.name("chat_id"), record.name("parent_chat_id")
    if not own:
        return record.name("session_id")
    return session_of.setdefault(own, own if parent in ("", "-1") else session_of.setdefault(parent, parent))


def _read_recording(
    header: TraceRecord, records: Iterator[TraceRecord], block_tokens: int | None
) -> Iterator[TraceRequest]:
    if header.fields[RECORDING_KEY] != RECORDING_VERSION:
        raise header.wrong(f"recordings of version {shown(header.fields[RECORDING_KEY])} are not known to this octavo")
    size = header.count("block_tokens", least=1)
    if block_tokens not in (None, size):
        raise header.wrong(f"the recording has blocks of {counted(size, 'token')}, not {block_tokens} (--trace-block)")
    known = BlockIds()
    for record in records:
        if RECORDING_KEY in record.fields:
            raise record.wrong("another recording begins; each must be replayed by itself")
        hashes = record.ids("blocks")
        prompt = record.count("prompt_tokens", least=1)
        output = record.count("output_tokens", least=0)
        num_blocks = -(-(prompt + output) // size)
        tail = [known.of_nobody()] * max(0, num_blocks - len(hashes))  # blocks after the last full one
        yield TraceRequest(
            arrival_s=record.number("arrival_s"),
            num_prompt_tokens=prompt,
            num_output_tokens=output,
            block_ids=np.array([*known.of(hashes), *tail], dtype=np.int32),
            block_tokens=size,
            resumed=record.fields.get("resumed") or {},
            place=record.place,
        )
