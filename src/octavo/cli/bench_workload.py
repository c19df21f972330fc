"""The workload of `octavo bench serve`: sessions of requests that follow one another.

Each request of a trace is its own session. A conversation is a session of several requests: each prompt is the last
one, its answer, and new tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import msgspec

from octavo.errors import MALFORMED, InputError

_TRACE_BLOCK_TOKENS = 512
"""Tokens per hash id of Mooncake's traces."""
_LOWEST_TOKEN = 3
"""The least token id in use: those below are special in most vocabularies."""
_MOST_LINE_BYTES = 16 << 20
_MOST_TOKENS, _MOST_REQUESTS = 100_000_000, 1_000_000
"""Of all conversations together, which are kept until the end."""
_SHARED, _OWN, _BLOCK, _ANSWER = range(4)
"""Kinds of synthetic text, so that no two have tokens in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """A source of synthetic text: equal names give equal ids, and different ones unrelated ids."""

    vocab_size: int
    seed: int

    def make(self, count: int, *name: int) -> list[int]:
        """Makes `count` token ids."""
        random = Random(repr((self.seed, *name)))  # noqa: S311 - not for secrets
        return random.choices(range(_LOWEST_TOKEN, self.vocab_size), k=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One request: the tokens that it adds to the session's prompt, and the length of its answer."""

    new_token_ids: Callable[[], list[int]]
    """Makes the tokens when they are sent: all prompts of a trace together would fill the memory."""
    output_tokens: int


@dataclass(slots=True, kw_only=True)
class Session:
    """Requests that follow one another, in one run of a benchmark."""

    start_s: float = 0.0
    """Seconds from the benchmark's start until the first request is sent."""
    turns: list[Turn]
    tokens: Tokens
    number: int
    prompt: list[int] = field(default_factory=list)
    """The tokens of the session so far."""

    def hear(self, token_ids: list[int], output_tokens: int) -> None:
        """Adds an answer to the prompt. If the server does not tell its tokens, others stand in for them."""
        self.prompt += token_ids or self.tokens.make(output_tokens, _ANSWER, self.number, len(self.prompt))


class _TraceLine(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


def read_trace(
    path: Path, tokens: Tokens, *, block_tokens: int, limit: int | None, speed: float | None
) -> list[Session]:
    """The requests of a trace, with lengths scaled to `block_tokens` for each hash id."""
    scale = block_tokens / _TRACE_BLOCK_TOKENS
    sessions: list[Session] = []
    for number, line in enumerate(_trace_lines(path), start=1):
        if limit is not None and number > limit:
            break
        length = max(1, round(line.input_length * scale))
        if len(line.hash_ids) != -(-line.input_length // _TRACE_BLOCK_TOKENS):
            raise InputError(
                f"{path}:{number}: {len(line.hash_ids)} hash_ids for {line.input_length} tokens are no blocks of "
                f"{_TRACE_BLOCK_TOKENS}, as Mooncake's traces have them"
            )
        turn = Turn(
            new_token_ids=partial(_make_blocks, tokens, line.hash_ids, block_tokens, length),
            output_tokens=max(1, round(line.output_length * scale)),
        )
        start_s = 0.0 if speed is None else line.timestamp / 1000 / speed
        sessions.append(Session(start_s=start_s, turns=[turn], tokens=tokens, number=number))
    if not sessions:
        raise InputError(f"{path} holds no requests")
    return sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationShape:
    """The lengths of conversations."""

    shared_tokens: int
    turn_tokens: int
    output_tokens: int
    turns: int


def hold_conversations(tokens: Tokens, shape: ConversationShape, count: int) -> list[Session]:
    """`count` conversations that begin alike."""
    num_requests = count * shape.turns
    num_tokens = count * shape.shared_tokens + num_requests * (shape.turn_tokens + shape.output_tokens)
    if num_tokens > _MOST_TOKENS or num_requests > _MOST_REQUESTS:
        raise InputError(
            f"these conversations have {num_requests:,} requests of {num_tokens:,} tokens, and may have "
            f"{_MOST_REQUESTS:,} of {_MOST_TOKENS:,} together: give fewer --conversations, --turns or tokens"
        )
    shared = tokens.make(shape.shared_tokens, _SHARED)
    return [
        Session(
            prompt=list(shared),
            turns=[
                Turn(
                    new_token_ids=partial(tokens.make, shape.turn_tokens, _OWN, number, turn),
                    output_tokens=shape.output_tokens,
                )
                for turn in range(shape.turns)
            ],
            tokens=tokens,
            number=number,
        )
        for number in range(count)
    ]


def _make_blocks(tokens: Tokens, hash_ids: Sequence[int], block_tokens: int, length: int) -> list[int]:
    return [token for hash_id in hash_ids for token in tokens.make(block_tokens, _BLOCK, hash_id)][:length]


def _trace_lines(path: Path) -> Iterator[_TraceLine]:
    decoder = msgspec.json.Decoder(_TraceLine)
    try:
        with path.open("rb") as lines:
            number = 0
            while line := lines.readline(_MOST_LINE_BYTES):
                number += 1
                if not line.strip():
                    continue
                try:
                    yield _checked(decoder.decode(line))
                except (*MALFORMED, InputError) as error:
                    raise InputError(f"{path}:{number}: not a line of a trace: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _checked(line: _TraceLine) -> _TraceLine:
    if line.timestamp < 0 or line.input_length < 1 or line.output_length < 0:
        raise InputError("timestamp, input_length and output_length must not be negative")
    return line
