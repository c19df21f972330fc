"""The forms of traces that are read, told apart by their first record.

One JSON object a line, or all of them in one JSON list; a folder of such files is one trace.

    hash ids        {"timestamp": 27, "input_length": 1100, "output_length": 50, "hash_ids": [0, 1, 2]}
                    Mooncake's (milliseconds, blocks of 512 tokens) and Qwen-Bailian's (seconds, blocks of 16; known
                    by "chat_id", which names a request; "parent_chat_id" names the one that it goes on with)
    sessions        {"id": "x", "block_size": 64, "requests": [{"t": 0.5, "in": 130, "out": 9, "hash_ids": [1, 2]}]}
                    those of agents that write programs (`trace_sessions`)
    conversations   {"id": "x", "conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}
                    ShareGPT's, or with "messages" or "conversation", "role" and "content" as chat APIs, LMSYS-Chat
                    and WildChat have them. Each turn of an assistant is a request with all that was said before.
    recordings      of an engine (`octavo serve --record`): the first line names the version and the block size
"""

import re
import zlib
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path

import numpy as np

from octavo.errors import InputError
from octavo.recording import RECORDING_KEY, RECORDING_VERSION
from octavo.settings import shown
from octavo.sim.trace_records import BadRecordError, TraceRecord, read_records
from octavo.sim.trace_sessions import OPEN_SESSIONS, read_sessions
from octavo.sim.traces import BlockIds, Trace, TraceRequest
from octavo.units import counted

MOONCAKE_BLOCK_TOKENS = 512
BAILIAN_BLOCK_TOKENS = 16

_ASSISTANTS = ("gpt", "assistant", "model", "chatgpt", "bing", "bard", "bot")
_CONVERSATIONS = ("conversations", "conversation", "messages")
_LARGEST_ID = (1 << 31) - 1
_MOST_SPEAKERS = 5
_WORD = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u9fff\uf900-\ufaff\uff00-\uffef\U0001f000-\U0003ffff]"
    r"|[^\s\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u9fff\uf900-\ufaff\uff00-\uffef\U0001f000-\U0003ffff]+"
)
"""A word, or one character of a script that has no spaces between words (Thai, Lao, Burmese, Khmer, Chinese, Japanese),
or one emoji."""


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
        requests = _read(records, block_tokens, open_sessions)
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


def _read(records: Iterator[TraceRecord], block_tokens: int | None, open_sessions: int | None) -> list[TraceRequest]:
    first = next(records, None)
    if first is None:
        raise InputError("has no requests")
    if open_sessions is not None and "requests" not in first.fields:
        raise InputError("has no sessions, but requests with times of their own (--sessions)")
    if RECORDING_KEY in first.fields:
        requests = list(_read_recording(first, records, block_tokens))
    elif any(key in first.fields for key in _CONVERSATIONS):
        requests = _read_conversations(chain([first], records))
    elif "hash_ids" in first.fields:
        requests = list(_read_hash_ids(first, records, block_tokens))
    elif "requests" in first.fields:
        requests = list(read_sessions(first, records, block_tokens, open_sessions or OPEN_SESSIONS))
    else:
        raise first.wrong(
            f"it has {', '.join(sorted(map(str, first.fields))) or 'nothing'}; a trace has hash_ids, sessions with "
            f"requests, or conversations, or is a recording of octavo's"
        )
    if not requests:
        raise InputError("has no requests")
    return requests


def _read_hash_ids(
    first: TraceRecord, others: Iterator[TraceRecord], block_tokens: int | None
) -> Iterator[TraceRequest]:
    is_bailian = "chat_id" in first.fields
    size = block_tokens or (BAILIAN_BLOCK_TOKENS if is_bailian else MOONCAKE_BLOCK_TOKENS)
    known = BlockIds()
    session_of: dict[str, str] = {}
    """By the name of a request: the name of the first one of its conversation."""
    for record in chain([first], others):
        prompt = record.count("input_length", least=1)
        ids = record.ids("hash_ids")
        if len(ids) != -(-prompt // size):
            raise record.wrong(
                f"an input_length of {prompt} takes {counted(-(-prompt // size), 'block')} of {size}, but "
                f"hash_ids has {len(ids)}; if the trace has blocks of another size, say so (--trace-block)"
            )
        stamp = record.number("timestamp")
        yield TraceRequest(
            arrival_s=stamp if is_bailian else stamp / 1000,
            num_prompt_tokens=prompt,
            num_output_tokens=record.count("output_length", least=0),
            block_ids=np.array(known.of(ids), dtype=np.int32),
            block_tokens=size,
            knows_output=False,
            session=_session(record, session_of),
            place=record.place,
        )


def _session(record: TraceRecord, session_of: dict[str, str]) -> str:
    """The conversation of a request that has a name, and may name the request that it goes on with (-1 if none)."""
    own, parent = record.name("chat_id"), record.name("parent_chat_id")
    if not own:
        return ""
    return session_of.setdefault(own, own if parent in ("", "-1") else session_of.setdefault(parent, parent))


def _read_conversations(records: Iterator[TraceRecord]) -> list[TraceRequest]:
    """Reads conversations, one after the other, a turn per second. Words stand for tokens."""
    ticks = count()
    requests: list[TraceRequest] = []
    speakers: dict[str, None] = {}
    for number, record in enumerate(records, start=1):
        said: list[int] = []
        for who, text in _turns_of(record):
            speakers[who] = None
            spoken = f"{who}: {text}"
            words = [zlib.crc32(word.encode(errors="surrogatepass")) & _LARGEST_ID for word in _WORD.findall(spoken)]
            if who.lower() in _ASSISTANTS and said:
                requests.append(
                    TraceRequest(
                        arrival_s=float(next(ticks)),
                        num_prompt_tokens=len(said),
                        num_output_tokens=len(words),
                        block_ids=np.array([*said, *words], dtype=np.int32),
                        block_tokens=1,
                        session=record.name("id") or record.name("conversation_id") or str(number),
                        place=record.place,
                    )
                )
            said += words
    if not requests:
        raise InputError(
            f"has no requests: one is a turn of {', '.join(_ASSISTANTS)} after another's, and there are "
            f"{', '.join(map(shown, list(speakers)[:_MOST_SPEAKERS])) or 'no turns'}"
        )
    return requests


def _turns_of(record: TraceRecord) -> Iterator[tuple[str, str]]:
    """The speaker and the text of each turn."""
    key = next((key for key in _CONVERSATIONS if key in record.fields), _CONVERSATIONS[0])
    turns = record.fields.get(key)
    if not isinstance(turns, list):
        raise record.wrong(f"{key} must be a list of turns, not {shown(turns)}")
    for number, turn in enumerate(turns, start=1):
        text = turn.get("value", turn.get("content", "")) if isinstance(turn, dict) else None
        who = turn.get("from", turn.get("role")) if isinstance(turn, dict) else None
        if isinstance(text, list):  # a content's parts; only texts count
            text = " ".join(str(part.get("text", "")) for part in text if isinstance(part, dict))
        if who is None or not isinstance(text, str | None) or not {"value", "content"} & turn.keys():
            raise record.wrong(f"turn {number} of {key} must have from and value, or role and content, as texts")
        yield str(who), text or ""


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
