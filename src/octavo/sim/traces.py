"""Traces: the requests' arrival times, their numbers of tokens, and which of their blocks are equal.

Three forms are read, told apart by their first record, one JSON object a line (the second also as one JSON list):

    hash ids        {"timestamp": 27, "input_length": 1100, "output_length": 50, "hash_ids": [0, 1, 2]}
                    Mooncake's (milliseconds, blocks of 512 tokens) and Qwen-Bailian's (seconds, blocks of 16; known
                    by "chat_id")
    conversations   {"id": "x", "conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}
                    ShareGPT's, or with "messages", "role" and "content" as chat APIs have them. Each turn of an
                    assistant is a request with all that was said before.
    recordings      of an engine (`octavo serve --record`): the first line names the version and the block size

Equal ids are equal blocks with equal prefixes; no text is needed. A request's tokens are made of its ids:

    ids [7, 9], blocks of 4, 6 tokens    ->    7 7 7 7 9 9
"""

import json
import logging
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from octavo.errors import MALFORMED, InputError, why_not_read
from octavo.recording import RECORDING_KEY, RECORDING_VERSION

_logger = logging.getLogger(__name__)

MOONCAKE_BLOCK_TOKENS = 512
BAILIAN_BLOCK_TOKENS = 16

Tokens = npt.NDArray[np.int32]
_GZIP = b"\x1f\x8b"
_LONGEST_LINE_BYTES = 64 << 20
"""Of one record. A device such as /dev/zero is one line without end."""
_MOST_TOKENS = 1 << 30
"""The most tokens of one request. More cannot be a language model's."""
_ASSISTANTS = ("gpt", "assistant", "model", "chatgpt", "bing", "bard")
_LARGEST_ID = (1 << 31) - 1
_LATEST = 1e18
"""The latest time of a request, in whatever unit: whole numbers of JSON can be larger than any float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """One request of a trace."""

    arrival_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    block_ids: Tokens
    """An id for each block of the prompt, and of the output if the trace knows it; the last block may be short."""
    block_tokens: int
    knows_output: bool = True
    """Whether the ids include the output."""
    session: str = ""
    """The same for all requests of one conversation; empty if the trace does not tell."""
    resumed: Mapping[str, int] | None = None
    """In a recording: the resumed tokens, by medium."""

    def prompt(self) -> Tokens:
        return np.repeat(self.block_ids, self.block_tokens)[: self.num_prompt_tokens]

    def output(self) -> Tokens:
        """The tokens of the output, as far as the trace knows them."""
        known = np.repeat(self.block_ids, self.block_tokens if self.knows_output else 0)
        return known[self.num_prompt_tokens : self.num_prompt_tokens + self.num_output_tokens]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The requests of a file, in the order of their arrival."""

    requests: Sequence[TraceRequest]
    block_tokens: int
    """Tokens per block. The trace tells nothing about shorter prefixes."""

    @classmethod
    def of_prompts(cls, prompts: Iterable[Sequence[int]], *, block_tokens: int, interval_s: float) -> Self:
        """A trace of prompts given as blocks, one after the other; each is answered with one token."""
        requests = [
            TraceRequest(
                arrival_s=number * interval_s,
                num_prompt_tokens=len(ids) * block_tokens,
                num_output_tokens=1,
                block_ids=np.array(ids, dtype=np.int32),
                block_tokens=block_tokens,
                knows_output=False,
            )
            for number, ids in enumerate(prompts)
        ]
        return cls(requests=requests, block_tokens=block_tokens)

    @property
    def num_prompt_tokens(self) -> int:
        return sum(request.num_prompt_tokens for request in self.requests)

    @property
    def longest(self) -> int:
        """The tokens of the longest request, output included."""
        return max(request.num_prompt_tokens + request.num_output_tokens for request in self.requests)


def read_trace(path: Path, *, block_tokens: int | None = None, most_requests: int | None = None) -> Trace:
    """Reads a trace. `block_tokens`: its ids' block size, if the file does not tell it and the usual one is wrong."""
    records = _records(path)
    if not records:
        raise InputError(f"trace {str(path)!r} has no requests")
    first = records[0]
    try:
        if RECORDING_KEY in first:
            requests = list(_read_recording(records, block_tokens))
        elif "conversations" in first or "messages" in first:
            requests = list(_read_conversations(records))
        elif "hash_ids" in first:
            requests = list(_read_hash_ids(records, block_tokens))
        else:
            raise InputError(
                f"trace {str(path)!r}: the first record has {', '.join(sorted(map(str, first))) or 'nothing'}; a trace "
                f"has hash_ids, or conversations, or is a recording of octavo's"
            )
    except _BadRecordError as error:
        raise InputError(f"trace {str(path)!r}, record {error.number}: {error}") from None
    requests.sort(key=lambda request: request.arrival_s)
    requests = requests[:most_requests]
    if not requests:
        raise InputError(f"trace {str(path)!r} has no requests")
    return Trace(requests=requests, block_tokens=requests[0].block_tokens)


class _BadRecordError(ValueError):
    def __init__(self, number: int, problem: str) -> None:
        super().__init__(problem)
        self.number = number


def _records(path: Path) -> list[dict[str, Any]]:
    what = f"trace {str(path)!r}"
    records: list[Any] = []
    try:
        with path.open("rb") as file:
            for text in _texts(file):
                try:
                    found = json.loads(text.decode())
                except MALFORMED:
                    if not _is_cut_off(text, records):
                        raise
                    _logger.warning("%s ends in the middle of a record, which is left out", what)
                    break
                records += found if isinstance(found, list) and not records else [found]
    except OSError as error:
        raise InputError(f"{what} cannot be read: {error.strerror or error}") from None
    except InputError as error:
        raise InputError(f"{what} {error}") from None
    except MALFORMED as error:
        raise InputError(f"{what}: record {len(records) + 1} {why_not_read(error)}") from None
    for number, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            raise InputError(f"{what}, record {number}: an object is wanted, not {record!r:.60}")
    return records


def _is_cut_off(text: bytes, before: Sequence[Any]) -> bool:
    """Whether a recording ends within this line, as its disk was full. What it has until there is whole."""
    is_recording = bool(before) and isinstance(before[0], dict) and RECORDING_KEY in before[0]
    return is_recording and not text.endswith(b"\n")


def _texts(file: BinaryIO) -> Iterator[bytes]:
    """The lines that are not empty, or all of the file if the first of them begins a list."""
    may_begin_list = True
    while line := file.readline(_LONGEST_LINE_BYTES + 1):
        line = line.removeprefix(BOM_UTF8)
        if line.startswith(_GZIP):
            raise InputError("is compressed: give what gunzip makes of it")
        if may_begin_list and line.lstrip().startswith(b"["):
            line += file.read()
        elif len(line) > _LONGEST_LINE_BYTES:
            raise InputError(f"has more than {_LONGEST_LINE_BYTES:,} bytes in one line")
        if line.strip():
            may_begin_list = False
            yield line


def _read_hash_ids(records: Iterable[Mapping[str, Any]], block_tokens: int | None) -> Iterator[TraceRequest]:
    known = _Ids()
    for number, record in enumerate(records, start=1):
        is_bailian = "chat_id" in record
        size = block_tokens or (BAILIAN_BLOCK_TOKENS if is_bailian else MOONCAKE_BLOCK_TOKENS)
        prompt = _count(record, "input_length", number, least=1)
        ids = record.get("hash_ids")
        if not isinstance(ids, list) or not all(isinstance(i, int) and i >= 0 for i in ids):
            raise _BadRecordError(number, "hash_ids must be a list of numbers from 0 on")
        if len(ids) != -(-prompt // size):
            raise _BadRecordError(
                number,
                f"{prompt} tokens are {-(-prompt // size)} blocks of {size}, but there are {len(ids)} hash_ids; "
                f"if the trace has blocks of another size, say so (--trace-block)",
            )
        stamp = _number(record, "timestamp", number)
        yield TraceRequest(
            arrival_s=stamp if is_bailian else stamp / 1000,
            num_prompt_tokens=prompt,
            num_output_tokens=_count(record, "output_length", number, least=0),
            block_ids=np.array(known.of(ids), dtype=np.int32),
            block_tokens=size,
            knows_output=False,
            session=str(record["chat_id"]) if is_bailian else "",
        )


def _read_conversations(records: Iterable[Mapping[str, Any]]) -> Iterator[TraceRequest]:
    """Reads conversations, one after the other, a turn per second. Words stand for tokens."""
    ticks = count()
    for number, record in enumerate(records, start=1):
        said: list[int] = []
        for who, text in _turns_of(record, number):
            words = [zlib.crc32(word.encode(errors="surrogatepass")) & _LARGEST_ID for word in f"{who}: {text}".split()]
            if who in _ASSISTANTS and said:
                yield TraceRequest(
                    arrival_s=float(next(ticks)),
                    num_prompt_tokens=len(said),
                    num_output_tokens=len(words),
                    block_ids=np.array([*said, *words], dtype=np.int32),
                    block_tokens=1,
                    session=str(record.get("id", number)),
                )
            said += words


def _turns_of(record: Mapping[str, Any], number: int) -> Iterator[tuple[object, str]]:
    """The speaker and the text of each turn."""
    turns = record.get("conversations", record.get("messages"))
    if not isinstance(turns, list):
        raise _BadRecordError(number, "conversations must be a list of turns")
    for turn in turns:
        text = turn.get("value", turn.get("content", "")) if isinstance(turn, dict) else None
        who = turn.get("from", turn.get("role")) if isinstance(turn, dict) else None
        if isinstance(text, list):  # a content's parts; only texts count
            text = " ".join(str(part.get("text", "")) for part in text if isinstance(part, dict))
        if who is None or not isinstance(text, str | None) or not {"value", "content"} & turn.keys():
            raise _BadRecordError(number, "a turn has from and value, or role and content, a text")
        yield who, text or ""


def _read_recording(records: Sequence[Mapping[str, Any]], block_tokens: int | None) -> Iterator[TraceRequest]:
    header = records[0]
    if header[RECORDING_KEY] != RECORDING_VERSION:
        raise _BadRecordError(1, f"recordings of version {header[RECORDING_KEY]!r} are not known to this octavo")
    size = _count(header, "block_tokens", 1, least=1)
    if block_tokens not in (None, size):
        raise _BadRecordError(1, f"the recording has blocks of {size} tokens, not {block_tokens}")
    known = _Ids()
    for number, record in enumerate(records[1:], start=2):
        hashes = record.get("blocks")
        if not isinstance(hashes, list) or not all(isinstance(i, int) and i >= 0 for i in hashes):
            raise _BadRecordError(number, "blocks must be a list of numbers from 0 on")
        prompt = _count(record, "prompt_tokens", number, least=1)
        output = _count(record, "output_tokens", number, least=0)
        num_blocks = -(-(prompt + output) // size)
        tail = [known.of_nobody()] * max(0, num_blocks - len(hashes))  # blocks after the last full one
        yield TraceRequest(
            arrival_s=_number(record, "arrival_s", number),
            num_prompt_tokens=prompt,
            num_output_tokens=output,
            block_ids=np.array([*known.of(hashes), *tail], dtype=np.int32),
            block_tokens=size,
            resumed=record.get("resumed") or {},
        )


class _Ids:
    """Numbers from 1 on, in the order in which names first come."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def of(self, names: Iterable[int]) -> list[int]:
        numbers = self._numbers
        return [numbers.setdefault(name, len(numbers) + 1) for name in names]

    def of_nobody(self) -> int:
        """A number that no other request has."""
        return self._numbers.setdefault(-len(self._numbers) - 1, len(self._numbers) + 1)


def _number(record: Mapping[str, Any], key: str, number: int) -> float:
    value = record.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _LATEST:
        raise _BadRecordError(number, f"{key} must be a number from 0 to {_LATEST:g}, not {value!r:.60}")
    return float(value)


def _count(record: Mapping[str, Any], key: str, number: int, *, least: int) -> int:
    value = record.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST_TOKENS:
        raise _BadRecordError(number, f"{key} must be a whole number from {least} on, not {value!r:.60}")
    return value
