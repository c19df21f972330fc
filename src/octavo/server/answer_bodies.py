"""What the server answers: OpenAI's bodies, with vLLM's extras where they were asked for."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

TokenIds = list[int] | tuple[int, ...]


class PromptTokensDetails(msgspec.Struct, kw_only=True):
    """The part of the prompt that need not be computed."""

    cached_tokens: int
    cached_tokens_by_medium: dict[str, int]


class Usage(msgspec.Struct, kw_only=True):
    """The tokens of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class CompletionLogprobs(msgspec.Struct, kw_only=True):
    """Four lists, by token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TopLogprob(msgspec.Struct, kw_only=True):
    """One of the likeliest tokens."""

    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(TopLogprob, kw_only=True):
    """A token and what might have come instead."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, kw_only=True):
    """Log-probabilities, token by token: of each a `ChatTokenLogprob`, written already, as it takes far less memory."""

    content: list[msgspec.Raw]


class PromptLogprob(msgspec.Struct, kw_only=True):
    """A log-probability in vLLM's form, under the token's id."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class CompletionChoice(msgspec.Struct, kw_only=True):
    """A text, or the next piece of one."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None
    token_ids: TokenIds | UnsetType = UNSET
    prompt_token_ids: TokenIds | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(msgspec.Struct, kw_only=True):
    """The answer of `/v1/completions`, and each piece of it."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET


class FunctionCall(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A name and arguments as JSON, or the next piece of them."""

    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class ToolCallPiece(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A call, or the next piece of one; `index` says which, in a stream."""

    index: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    function: FunctionCall


class ChatText(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message, or the next piece of one."""

    role: str | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    """The model's thoughts, if its format parts them from the answer."""
    tool_calls: list[ToolCallPiece] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, kw_only=True):
    """A message, or the next piece of one, and why it ended."""

    index: int
    message: ChatText | UnsetType = UNSET
    delta: ChatText | UnsetType = UNSET
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None
    token_ids: TokenIds | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, kw_only=True):
    """The answer of `/v1/chat/completions`, and each piece of it."""

    id: str
    object: Literal["chat.completion", "chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: TokenIds | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


def encode(message: Any) -> bytes:
    """The answer, as JSON."""
    return msgspec.json.encode(message)
