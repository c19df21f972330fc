"""What the engine hands out: the news of one choice of one request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple


class FinishReason(StrEnum):
    """Why a choice ended."""

    STOP = "stop"
    """A stop token, a stop string, or the model's own end."""
    LENGTH = "length"
    """`max_tokens`, or the longest context."""
    DEAD_END = "dead_end"
    """The grammar lets nothing follow, and the text is not whole."""
    ABORT = "abort"
    ERROR = "error"


class TokenLogprobs(NamedTuple):
    """How likely a token was, and what else might have come: of the model's own distribution."""

    token_id: int
    logprob: float
    rank: int
    """1 is the most likely."""
    top: tuple[tuple[int, float], ...]
    """(token, log-probability), the most likely first."""


PromptLogprobs = Sequence[TokenLogprobs | None]
"""By position; nothing comes before the first token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutput:
    """What is new of one choice since the last output of it."""

    request_id: str
    index: int
    """Which of the request's `n` choices."""
    token_ids: tuple[int, ...] = ()
    """New tokens, a stop token included."""
    text: str = ""
    """New text in whole characters, without stop tokens and stop strings."""
    logprobs: tuple[TokenLogprobs, ...] | None = None
    """Of `token_ids`, if they were asked for."""
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop token or stop string that the request named, if that ended the choice."""
    error: str | None = None
    num_prompt_tokens: int
    num_output_tokens: int
    """Of this choice so far."""
    cached_tokens: Mapping[str, int] = field(default_factory=dict)
    """Prompt tokens that were resumed, by the medium that they came from."""
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    """With the first output of a choice, if they were asked for."""

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    def then(self, later: "RequestOutput") -> "RequestOutput":
        """Both as one, for who has not read the first yet."""
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
