"""What clients send: OpenAI's bodies with vLLM's extras, as far as they mean something here.

Clients send many fields that no server knows, and null for what they leave open: both are fine. A known field of a
wrong type is refused. So is one that would change the answer and cannot be honoured.
"""

from typing import Any, TypeVar

import msgspec

from octavo.server.errors import ApiError, bad_request
from octavo.settings import explain

Prompt = str | list[str | int | list[int]]
"""Text, token ids, or a list of either."""

_T = TypeVar("_T")


class StreamOptions(msgspec.Struct, kw_only=True):
    """What a stream tells besides its pieces."""

    include_usage: bool | None = None


class _GenerationRequest(msgspec.Struct, kw_only=True):
    """What both ways to ask for text have in common."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    # vLLM's:
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    prompt_logprobs: int | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    add_special_tokens: bool | None = None
    cache_salt: str | None = None

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with the numbers."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def check(self) -> None:
        """Refuses what would be served wrongly."""
        if self.logit_bias:
            raise _unsupported("logit_bias")
        if self.cache_salt == "":
            raise bad_request("cache_salt must not be empty", param="cache_salt")
        if self.stream_options is not None and not self.stream:
            raise bad_request("stream_options are for streams; set stream", param="stream_options")
        if self.stream and self.prompt_logprobs is not None:
            raise bad_request("prompt_logprobs are not streamed; leave stream out", param="prompt_logprobs")


class CompletionRequest(_GenerationRequest, kw_only=True):
    """The body of `/v1/completions`."""

    prompt: Prompt
    echo: bool | None = None
    logprobs: int | None = None
    suffix: str | None = None
    best_of: int | None = None

    def check(self) -> None:
        """Refuses what would be served wrongly."""
        _GenerationRequest.check(self)
        if self.suffix:
            raise _unsupported("suffix")
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise bad_request("best_of must equal n", param="best_of")
        if self.stream and self.echo and self.logprobs is not None:
            raise bad_request("echo with logprobs is not streamed; leave stream out", param="echo")


class ContentPart(msgspec.Struct, kw_only=True):
    """A part of a message; only text is served."""

    type: str
    text: str | None = None


class ChatMessage(msgspec.Struct, kw_only=True):
    """One turn of a conversation."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class ResponseFormat(msgspec.Struct, kw_only=True):
    """Only plain text is served."""

    type: str


class ChatRequest(_GenerationRequest, kw_only=True):
    """The body of `/v1/chat/completions`."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: ResponseFormat | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def check(self) -> None:
        """Refuses what would be served wrongly."""
        _GenerationRequest.check(self)
        if not self.messages:
            raise bad_request("messages must hold at least one message", param="messages")
        if self.tools and self.tool_choice != "none":
            raise _unsupported("tools")
        if self.response_format is not None and self.response_format.type != "text":
            raise _unsupported("response_format")
        if self.top_logprobs is not None and not self.logprobs:
            raise bad_request("top_logprobs needs logprobs: true", param="top_logprobs")


def decode(body: bytes | bytearray, decoder: msgspec.json.Decoder[_T]) -> _T:
    """A body as its struct, or the 400 that says which field is wrong."""
    try:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as error:  # the rest of the body may be no JSON at all
            complaint = explain(error, msgspec.json.decode(body), decoder.type)
            raise bad_request(complaint.sentence, param=complaint.key or None) from None
    except msgspec.DecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    except UnicodeDecodeError:
        raise bad_request("the body is not JSON: it is not UTF-8") from None
    except RecursionError:
        raise bad_request("the body is nested too deeply") from None


def _unsupported(field: str) -> ApiError:
    return bad_request(f"{field} is not supported by this server; leave it out", param=field, code="unsupported")
