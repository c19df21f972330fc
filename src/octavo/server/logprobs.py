"""Log-probabilities as clients read them: OpenAI's two forms, and vLLM's for prompts."""

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Protocol

from msgspec import Raw

from octavo.engine import FastTokenizer, TokenLogprobs
from octavo.server.answer_bodies import (
    ChatLogprobs,
    ChatTokenLogprob,
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
    TopLogprob,
    encode,
)

_LEAST_LOGPROB = -9999.0
"""JSON has no infinity."""
_MOST_NAMES = 1 << 16
"""Names of tokens that are remembered: a decoder takes some microseconds for each, and an answer may name millions."""

_LETTER = "a"
"""Behind it a token is written as within a text. Decoders of SentencePiece's kind drop the first space of a text."""


class TokenNamer(Protocol):
    """How a token is written: within a text, or as its first one."""

    def __call__(self, token_id: int, /, *, is_first: bool = False) -> str: ...


def token_namer(tokenizer: FastTokenizer | None, *, as_ids: bool) -> TokenNamer:
    """Tokens as text, or as `token_id:5`, which tells all of them apart."""
    if tokenizer is None or as_ids:
        return _id_as_text
    before = _letter(tokenizer)
    text_before = tokenizer.decode(before) if before else ""

    def name(token_id: int, /, *, is_first: bool = False) -> str:
        text = "" if is_first else tokenizer.decode([*before, token_id])
        return text.removeprefix(text_before) if text.startswith(text_before) else tokenizer.decode([token_id])

    return lru_cache(_MOST_NAMES)(name)


def completion_logprobs(
    tokens: Iterable[TokenLogprobs | int], name: TokenNamer, offsets: Iterable[int]
) -> CompletionLogprobs:
    """A completion's four lists. A bare id is a token of which nothing is known: the first of a prompt."""
    told = CompletionLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])
    for token, offset in zip(tokens, offsets, strict=True):
        text = name(token if isinstance(token, int) else token.token_id)
        told.tokens.append(text)
        told.text_offset.append(offset)
        if isinstance(token, int):
            told.token_logprobs.append(None)
            told.top_logprobs.append(None)
            continue
        told.token_logprobs.append(_finite(token.logprob))
        top: dict[str, float] = {}
        for token_id, logprob in token.top:
            top.setdefault(name(token_id), _finite(logprob))  # of tokens that look alike, the likeliest
        top.setdefault(text, _finite(token.logprob))
        told.top_logprobs.append(top)
    return told


def chat_logprobs(tokens: Sequence[TokenLogprobs], name: TokenNamer, *, is_first: bool) -> ChatLogprobs:
    """A message's tokens, each with its alternatives. `is_first`: the first of them begins the message."""
    first, rest = tokens[:is_first], tokens[is_first:]
    content = [Raw(encode(_chat_logprob(token, partial(name, is_first=True)))) for token in first]
    content += [Raw(encode(_chat_logprob(token, name))) for token in rest]
    return ChatLogprobs(content=content)


def prompt_logprobs(tokens: Sequence[TokenLogprobs | None], name: TokenNamer) -> PromptLogprobs:
    """Per position: the token itself and the likeliest tokens, by their ids."""
    return [None if token is None else _prompt_logprob(token, name) for token in tokens]


def _prompt_logprob(token: TokenLogprobs, name: TokenNamer) -> dict[str, PromptLogprob]:
    ranked = [(token.token_id, token.logprob, token.rank)]
    ranked += [(token_id, logprob, rank) for rank, (token_id, logprob) in enumerate(token.top, start=1)]
    return {
        str(token_id): PromptLogprob(logprob=_finite(logprob), rank=rank, decoded_token=name(token_id))
        for token_id, logprob, rank in ranked
    }


def _chat_logprob(token: TokenLogprobs, name: TokenNamer) -> ChatTokenLogprob:
    text = name(token.token_id)
    return ChatTokenLogprob(
        token=text,
        logprob=_finite(token.logprob),
        bytes=list(text.encode()),
        top_logprobs=[_top_logprob(name(token_id), logprob) for token_id, logprob in token.top],
    )


def _letter(tokenizer: FastTokenizer) -> list[int]:
    """Its token; none in a tokenizer with an alphabet of its own."""
    try:
        return tokenizer.encode(_LETTER, add_special_tokens=False)[-1:]
    except Exception:  # noqa: BLE001 - it raises what it likes for what it does not know
        return []


def _id_as_text(token_id: int, /, *, is_first: bool = False) -> str:  # noqa: ARG001 - one is like another
    return f"token_id:{token_id}"


def _top_logprob(text: str, logprob: float) -> TopLogprob:
    return TopLogprob(token=text, logprob=_finite(logprob), bytes=list(text.encode()))


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST_LOGPROB)
