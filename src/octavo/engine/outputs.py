"""What the engine hands out: the new output of one choice of one request."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, overload


class FinishReason(StrEnum):
    """Why a choice ended."""

    STOP = "stop"
    """A stop token, a stop string, or the model's own end token came."""
    LENGTH = "length"
    """`max_tokens` or the longest context was reached."""
    DEAD_END = "dead_end"
    """The grammar allows no next token, and the text is not complete."""
    ABORT = "abort"
    ERROR = "error"


class Alternatives(Sequence[tuple[int, float]]):
    """Tokens with their log-probabilities, the most likely first. Eight bytes each: an answer may name millions."""

    __slots__ = ("_logprobs", "_token_ids")

    def __init__(self, token_ids: Iterable[int] = (), logprobs: Iterable[float] = ()) -> None:
        self._token_ids, self._logprobs = array("i", token_ids), array("f", logprobs)

    def __len__(self) -> int:
        return len(self._token_ids)

    @overload
    def __getitem__(self, index: int) -> tuple[int, float]: ...

    @overload
    def __getitem__(self, index: slice) -> "Alternatives": ...

    def __getitem__(self, index: int | slice) -> "tuple[int, float] | Alternatives":
        if isinstance(index, slice):
            return Alternatives(self._token_ids[index], self._logprobs[index])
        return self._token_ids[index], self._logprobs[index]

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return zip(self._token_ids, self._logprobs, strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Alternatives):
            return NotImplemented
        return self._token_ids == other._token_ids and self._logprobs == other._logprobs

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Alternatives({list(self)})"


class TokenLogprobs(NamedTuple):
    """The log-probability of a token and of its alternatives, in the model's own distribution."""

    token_id: int
    logprob: float
    rank: int
    """1 for the most likely token."""
    top: Alternatives


PromptLogprobs = Sequence[TokenLogprobs | None]
"""One per position; the first token has None, as nothing comes before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutput:
    """The new output of one choice since its last one."""

    request_id: str
    index: int
    """The choice's index among the request's `n`."""
    token_ids: tuple[int, ...] = ()
    """New tokens, a stop token included."""
    text: str = ""
    """New text in whole characters, without stop tokens and stop strings."""
    logprobs: tuple[TokenLogprobs, ...] | None = None
    """One for each of `token_ids`, if they were asked for."""
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop token or stop string of the request that ended the choice."""
    error: str | None = None
    num_prompt_tokens: int
    num_output_tokens: int
    """The choice's output tokens so far."""
    cached_tokens: Mapping[str, int] = field(default_factory=dict)
    """Prompt tokens that were resumed, by the medium that they came from."""
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    """Those of the whole prompt, with the first output of a choice, if they were asked for."""

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    def then(self, later: "RequestOutput") -> "RequestOutput":
        """This output and the next one merged, for a reader who has not read this one yet."""
        logprobs = self.logprobs
        if later.logprobs is not None:
            logprobs = (logprobs or ()) + later.logprobs
        return replace(
            later,
            token_ids=self.token_ids + later.token_ids,
            text=self.text + later.text,
            logprobs=logprobs,
            prompt_logprobs=self.prompt_logprobs if later.prompt_logprobs is None else later.prompt_logprobs,
        )
