"""The workload of `octavo bench serve`: sessions of requests that follow one another.

Each request of a trace is its own session. A conversation is a session of several requests: each prompt is the last
one, its answer, and new tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from octavo.errors import InputError
from octavo.sim import Trace
from octavo.specs import ceil_div

_LOWEST_TOKEN = 3
"""The least token id in use: those below are special in most vocabularies."""
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


def replay_trace(trace: Trace, tokens: Tokens, *, block_tokens: int | None, speed: float | None) -> list[Session]:
    """The requests of a trace, with lengths scaled to `block_tokens` for each of its blocks."""
    follower = next((asked for asked in trace.requests if asked.follows), None)
    if speed is not None and follower is not None:
        raise InputError(
            f"{follower.place} of the trace comes after another request's end, and has no time: leave out --speed"
        )
    wanted = block_tokens or trace.block_tokens
    scale = wanted / trace.block_tokens
    sessions = []
    first_s = trace.requests[0].arrival_s  # times may be seconds since 1970
    for number, asked in enumerate(trace.requests, start=1):
        ids = asked.block_ids[: ceil_div(asked.num_prompt_tokens, trace.block_tokens)].tolist()
        length = max(1, round(asked.num_prompt_tokens * scale))
        turn = Turn(
            new_token_ids=partial(_make_blocks, tokens, ids, wanted, length),
            output_tokens=max(1, round(asked.num_output_tokens * scale)),
        )
        start_s = 0.0 if speed is None else (asked.arrival_s - first_s) / speed
        sessions.append(Session(start_s=start_s, turns=[turn], tokens=tokens, number=number))
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
    """The tokens of a prompt. Of each block no more is made than the prompt has: a block may be of any length."""
    made: list[int] = []
    for hash_id in hash_ids:
        made += tokens.make(min(block_tokens, length - len(made)), _BLOCK, hash_id)
    return made
