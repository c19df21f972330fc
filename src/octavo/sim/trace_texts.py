"""Traces of texts: conversations, and requests as APIs get them. Words stand for tokens.

    {"id": "x", "conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}
    {"messages": [{"role": "user", "content": "..."}], "output_length": 50, "timestamp": 2000}
    {"prompt": "...", "output_tokens": 10}

In a conversation each turn of an assistant is a request with all that was said before. A trace whose first `messages`
end with another one's turn is a log of requests as APIs get them: each record is one, and its assistant's turns are a
part of the prompt.
"""

import json
import re
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, count, islice

import numpy as np

from octavo.errors import InputError
from octavo.settings import shown
from octavo.sim.trace_records import TraceRecord
from octavo.sim.trace_times import DELAYS, Times
from octavo.sim.traces import Tokens, TraceRequest

PROMPTS = ("prompt", "text_input")
TURNS = ("conversations", "conversation", "messages", "items")

_SENT = "messages"
_TIME = "timestamp"
_ASSISTANTS = ("gpt", "assistant", "model", "chatgpt", "bing", "bard", "bot", "function_call")
_SAID = ("value", "content")
_CALLS = ("tool_calls", "function_call")
_BEFORE = ("system", "tools", "functions")
"""What some records have beside their turns. A model reads it before them."""
_TEXTS_OF_A_PART = ("text", "name", "content", "output", "function")
_VALUES_OF_A_PART = ("input", "arguments")
_CONVERSATION_NAMES = ("id", "conversation_id", "session_id", "conversation_hash")
_REQUEST_NAMES = ("session_id", "conversation_id")
_ANSWERS = ("completion", "response")
_LENGTHS = ("output_length", "output_tokens")
_LIMITS = ("max_completion_tokens", "max_tokens")
_USUAL_OUTPUT = 256
"""Tokens of an answer of which nothing is told but perhaps a higher limit."""
_MOST_SPEAKERS = 5
_LARGEST_ID = (1 << 31) - 1
_WORD = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u9fff\uf900-\ufaff\uff00-\uffef\U0001f000-\U0003ffff]"
    r"|[^\s\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u9fff\uf900-\ufaff\uff00-\uffef\U0001f000-\U0003ffff]+"
)
"""A word, or one character of a script that has no spaces between words (Thai, Lao, Burmese, Khmer, Chinese, Japanese),
or one emoji."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request without its time."""

    words: Tokens
    """Those of the prompt, and of the answer as far as it is known."""
    num_prompt_tokens: int
    num_answer_tokens: int
    session: str
    record: TraceRecord

    def at(self, arrival_s: float) -> TraceRequest:
        return TraceRequest(
            arrival_s=arrival_s,
            num_prompt_tokens=self.num_prompt_tokens,
            num_output_tokens=self.num_answer_tokens,
            block_ids=self.words,
            block_tokens=1,
            session=self.session,
            place=self.record.place,
        )


def read_texts(
    first: TraceRecord, others: Iterator[TraceRecord], *, open_sessions: int, most_requests: int | None
) -> Iterator[TraceRequest]:
    """Requests at the times that their records tell. If the first record tells none, one comes each second, from
    `open_sessions` conversations in turn; the next conversation begins when one ends. Then no more than `most_requests`
    are read, as they come in order."""
    reader = _Reader(are_requests=_is_request(first))
    conversations = map(reader.requests_of, count(1), chain([first], others))
    if reader.are_requests and first.has(_TIME):
        times = Times(first.time_units_per_s(_TIME))
        for asked in chain.from_iterable(conversations):
            yield times.timed(asked.at(0.0), asked.record)
    else:
        for second, asked in enumerate(islice(_in_turn(conversations, open_sessions), most_requests)):
            if reader.are_requests and any(map(asked.record.has, (_TIME, *DELAYS))):
                raise asked.record.wrong(f"it has a time, and the first record has none: give it a {_TIME}")
            yield asked.at(float(second))
    reader.check_found()


def _is_request(record: TraceRecord) -> bool:
    key = _key_of(record)
    if key in PROMPTS:
        return True
    turns = _turns_of(record, key)
    return key == _SENT and bool(turns) and not _is_assistant(turns[-1][0])


def _in_turn(conversations: Iterator[list[_Asked]], num_open: int) -> Iterator[_Asked]:
    opened: deque[deque[_Asked]] = deque()
    while True:
        while len(opened) < num_open and (fresh := next(conversations, None)) is not None:
            if fresh:
                opened.append(deque(fresh))
        if not opened:
            return
        one = opened.popleft()
        yield one.popleft()
        if one:
            opened.append(one)


class _Reader:
    """Makes requests of records, and knows whom it has heard."""

    def __init__(self, *, are_requests: bool) -> None:
        """`are_requests`: each record is one, and no conversation."""
        self.are_requests = are_requests
        self._num_found = 0
        self._speakers: dict[str, None] = {}
        self._session_of: dict[bytes, str] = {}
        """By the digest of a record's turns: its session. A later record may go on with them."""

    def requests_of(self, number: int, record: TraceRecord) -> list[_Asked]:
        if _key_of(record) in PROMPTS:
            found = [self._prompt(number, record)]
        elif self.are_requests:
            found = [self._sent(number, record)]
        else:
            found = self._conversation(number, record)
        self._num_found += len(found)
        return found

    def check_found(self) -> None:
        if not self._num_found:
            raise InputError(
                f"has no requests: one is a turn of {', '.join(_ASSISTANTS)} after another's, and there are "
                f"{', '.join(map(shown, list(self._speakers)[:_MOST_SPEAKERS])) or 'no turns'}"
            )

    def _prompt(self, number: int, record: TraceRecord) -> _Asked:
        key = _key_of(record)
        text = record.fields[key]
        if not isinstance(text, str) or not text.strip():
            raise record.wrong(f"{key} must be a text, not {shown(text)}")
        return self._request(record, _words_of(text), record.first_name(*_REQUEST_NAMES) or str(number))

    def _sent(self, number: int, record: TraceRecord) -> _Asked:
        """One request with all turns. If no session is named, it is that of an earlier one with which this goes on."""
        words, digest, session = _words_before(record), blake2b(digest_size=16), str(number)
        turns = _turns_of(record, _SENT)
        if not turns:
            raise record.wrong(f"{_SENT} has no turns")
        if record.fields.get("message_mode") == "delta":
            raise record.wrong(f"{_SENT} has only what is new (message_mode is delta): give all that was said before")
        for who, text in turns:
            words += _words_of(f"{who}: {text}")
            digest.update(repr((who, text)).encode(errors="surrogatepass"))
            session = self._session_of.get(digest.digest(), session)
        self._session_of[digest.digest()] = session
        return self._request(record, words, record.first_name(*_REQUEST_NAMES) or session)

    def _request(self, record: TraceRecord, words: list[int], session: str) -> _Asked:
        answer: list[int] = []
        for key in _ANSWERS:
            text = record.fields.get(key)
            if isinstance(text, str):
                answer = _words_of(text)
        told = (key for key in _LENGTHS if record.fields.get(key) is not None)
        length = next((record.count(key, least=0) for key in told), None)
        if length is None:
            limits = (record.fields.get(key) for key in _LIMITS)
            known = [limit for limit in limits if isinstance(limit, int) and limit > 0]  # -1 is none, on some servers
            length = len(answer) or min([_USUAL_OUTPUT, *known])
        return _Asked(
            words=np.array([*words, *answer[:length]], dtype=np.int32),
            num_prompt_tokens=len(words),
            num_answer_tokens=length,
            session=session,
            record=record,
        )

    def _conversation(self, number: int, record: TraceRecord) -> list[_Asked]:
        """The requests of a conversation. Each is the beginning of the same words. Of one that goes on with an earlier
        record, as in a log of what has been said so far, those after it, unless their names say that they are two."""
        key = _key_of(record)
        said, digest = _words_before(record), blake2b(digest_size=16)
        name = record.first_name(*(_REQUEST_NAMES if key == _SENT else _CONVERSATION_NAMES))
        session = name or str(number)
        answers: list[tuple[int, int]] = []
        """Where each begins and ends."""
        for index, (who, text) in enumerate(_turns_of(record, key)):
            self._speakers[who] = None
            earlier = self._session_of.get(digest.digest())
            if earlier is not None and name in ("", earlier):
                session, answers = earlier, []
            begin = len(said)
            said += _words_of(f"{who}: {text}")
            digest.update(repr((who, text)).encode(errors="surrogatepass"))
            if index and _is_assistant(who):
                answers.append((begin, len(said)))
        if answers:
            self._session_of[digest.digest()] = session
        whole = np.array(said, dtype=np.int32)
        return [
            _Asked(
                words=whole[:end],
                num_prompt_tokens=begin,
                num_answer_tokens=end - begin,
                session=session,
                record=record,
            )
            for begin, end in answers
        ]


def _key_of(record: TraceRecord) -> str:
    return next((key for key in (*TURNS, *PROMPTS) if key in record.fields), TURNS[0])


def _is_assistant(who: str) -> bool:
    return who.lower() in _ASSISTANTS


def _words_of(text: str) -> list[int]:
    return [zlib.crc32(word.encode(errors="surrogatepass")) & _LARGEST_ID for word in _WORD.findall(text)]


def _words_before(record: TraceRecord) -> list[int]:
    """What a model reads before the turns: the system prompt and the tools, where they stand beside the turns."""
    found = ((key, record.fields.get(key)) for key in _BEFORE)
    texts = (f"{key}: {_text_of(value) if key == 'system' else _as_json(value)}" for key, value in found if value)
    return _words_of("\n".join(texts))


def _turns_of(record: TraceRecord, key: str) -> list[tuple[str, str]]:
    """The speaker and the text of each turn."""
    turns = record.fields.get(key)
    if key not in record.fields:
        raise record.wrong(f"{key} is missing; all records of a trace have one form")
    if not isinstance(turns, list):
        raise record.wrong(f"{key} must be a list of turns, not {shown(turns)}")
    found: list[tuple[str, str]] = []
    for number, turn in enumerate(turns, start=1):
        who, text = _turn_of(turn) if isinstance(turn, dict) else (None, None)
        if who is None or text is None:
            raise record.wrong(f"turn {number} of {key} must have from and value, or role and content, as texts")
        found.append((str(who), text))
    return found


def _turn_of(turn: dict[str, object]) -> tuple[object, str | None]:
    """The speaker, and all that a model reads or writes; None if a turn says nothing that is understood."""
    who = turn.get("from", turn.get("role"))
    said = next((key for key in _SAID if key in turn), None)
    calls = [turn[key] for key in _CALLS if turn.get(key)]
    is_text = said is None or isinstance(turn[said], str | list | None)
    if not is_text or (said is None and not calls):
        return who, None
    return who, " ".join(filter(None, map(_text_of, [turn[said] if said else None, *calls])))


def _text_of(value: object) -> str:
    """The texts of a turn, or of a part of one: an image or a sound has none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return " ".join(filter(None, map(_text_of, value)))
    if not isinstance(value, dict):
        return ""
    texts = [_text_of(value[key]) for key in _TEXTS_OF_A_PART if key in value]
    return " ".join(filter(None, [*texts, *(_as_json(value[key]) for key in _VALUES_OF_A_PART if key in value)]))


def _as_json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
