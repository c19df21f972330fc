"""What clients send: OpenAI's bodies with vLLM's extras, as far as they mean something here.

Clients send many fields that no server knows, and null for what they leave open: both are fine, and
`octavo.server.ignored_fields` names the unknown ones. Refused are known fields of a wrong type, and those that would
change the answer and cannot be honoured.
"""

import re
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import msgspec

from octavo.errors import MALFORMED, why_not_read
from octavo.http import ApiError, bad_request
from octavo.settings import explain, shown

Prompt = str | list[str | int | list[int]]
"""Text, token ids, or a list of either."""

CacheRetention = Literal["in_memory", "in-memory", "24h"]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]

_T = TypeVar("_T")
_OTHER_TYPES = ("string", "number", "integer", "boolean", "array", "null")
"""What JSON knows besides objects."""
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_.:/-]{1,128}")


class StreamOptions(msgspec.Struct, kw_only=True):
    """What a stream tells besides its pieces."""

    include_usage: bool | None = None


class JsonSchema(msgspec.Struct, kw_only=True):
    """A schema that an answer follows."""

    name: str | None = None
    schema_: dict[str, Any] | None = msgspec.field(name="schema", default=None)
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, kw_only=True):
    """The form of an answer: `text`, `json_object`, or `json_schema` with its schema."""

    type: str
    json_schema: JsonSchema | None = None


class StructuredOutputs(msgspec.Struct, kw_only=True):
    """vLLM's way to give the form of an answer: exactly one of these."""

    json: dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None


class _GenerationRequest(msgspec.Struct, kw_only=True):
    """The fields that completions and conversations share."""

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
    response_format: ResponseFormat | None = None
    # vLLM's:
    structured_outputs: StructuredOutputs | None = None
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
    # how long the prompt will be wanted, as OpenAI has it:
    prompt_cache_key: str | None = None
    """A router keeps the requests of one key together; here what can be resumed is found by its content."""
    prompt_cache_retention: CacheRetention | None = None

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


class CacheControl(msgspec.Struct, kw_only=True):
    """Anthropic's mark: other prompts will begin in the same way up to here, for this long."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class ContentPart(msgspec.Struct, kw_only=True):
    """A part of a message; only text is served."""

    type: str
    text: str | None = None
    cache_control: CacheControl | None = None


class CalledFunction(msgspec.Struct, kw_only=True):
    """A call's name, and its arguments as JSON."""

    name: str
    arguments: str | dict[str, Any] = "{}"


class ToolCall(msgspec.Struct, kw_only=True):
    """A call that the model made earlier."""

    function: CalledFunction
    type: str = "function"
    id: str | None = None


class ChatMessage(msgspec.Struct, kw_only=True):
    """One turn of a conversation."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class Function(msgspec.Struct, kw_only=True):
    """The name of a tool, its purpose, and a schema of its arguments."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, kw_only=True):
    """A function that the model may call."""

    type: str
    function: Function


class FunctionName(msgspec.Struct, kw_only=True):
    """The name of a tool that must be called."""

    name: str


class NamedTool(msgspec.Struct, kw_only=True):
    """The tool that must be called."""

    type: str
    function: FunctionName | None = None

    @property
    def name(self) -> str:
        """The tool's; empty if none is named."""
        return "" if self.function is None else self.function.name


class ChatRequest(_GenerationRequest, kw_only=True):
    """The body of `/v1/chat/completions`."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Tool] | None = None
    tool_choice: str | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: ReasoningEffort | None = None
    """For templates that have this variable."""

    @property
    def length_name(self) -> str:
        """The field that says how many tokens the answer may have. The second is its newer name."""
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"

    def check(self) -> None:
        """Refuses what would be served wrongly."""
        _GenerationRequest.check(self)
        if not self.messages:
            raise bad_request("messages must hold at least one message", param="messages")
        _check_tools(self.tools or (), self.tool_choice)
        if self.top_logprobs is not None and not self.logprobs:
            raise bad_request("top_logprobs needs logprobs: true", param="top_logprobs")


def decode(body: bytes | bytearray, decoder: msgspec.json.Decoder[_T]) -> _T:
    """A body as its struct, or the 400 that says which field is wrong."""
    try:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as error:  # the rest of the body may be no JSON at all
            complaint = explain(error, msgspec.json.decode(body), decoder.type, whole="the body")
            raise bad_request(complaint.sentence, param=complaint.key or None) from None
    except MALFORMED as error:
        raise bad_request(f"the body {why_not_read(error, body)}") from None


def _check_tools(tools: Sequence[Tool], choice: str | NamedTool | None) -> None:
    names: set[str] = set()
    for index, tool in enumerate(tools):
        at = f"tools[{index}].function.name"
        if tool.type != "function":
            raise bad_request(f"tools are functions, not {shown(tool.type)}", param=f"tools[{index}].type")
        if not _TOOL_NAME.fullmatch(tool.function.name):
            raise bad_request(
                f"a tool's name must match {_TOOL_NAME.pattern}, not {shown(tool.function.name)}", param=at
            )
        if tool.function.name in names:
            raise bad_request(f"two tools are named {shown(tool.function.name)}", param=at)
        names.add(tool.function.name)
        if (kind := (tool.function.parameters or {}).get("type")) in _OTHER_TYPES:
            raise bad_request(
                f"a tool is called with an object, not with {shown(kind)}: give parameters of type object",
                param=f"tools[{index}].function.parameters.type",
            )
    if isinstance(choice, NamedTool) and choice.function is not None:
        if choice.name not in names:
            raise bad_request(f"no tool is named {shown(choice.name)}", param="tool_choice")
    elif choice not in (None, "none", "auto", "required"):
        raise bad_request("tool_choice must be none, auto, required, or name a function", param="tool_choice")
    elif choice == "required" and not names:
        raise bad_request("tool_choice is required, and there are no tools", param="tool_choice")


def _unsupported(field: str) -> ApiError:
    return bad_request(f"{field} is not supported by this server; leave it out", param=field, code="unsupported")
