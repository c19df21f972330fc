"""The body of `/v1/responses`: OpenAI's newer way to ask for a text, as the conversation that it stands for.

Nothing is kept between requests, so what needs an earlier one, or a later look, is refused by name.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from octavo.http import ApiError, bad_request
from octavo.server.requests import (
    CacheRetention,
    CalledFunction,
    ChatMessage,
    ChatRequest,
    ContentPart,
    Function,
    FunctionName,
    JsonSchema,
    NamedTool,
    ReasoningEffort,
    ResponseFormat,
    Tool,
    ToolCall,
)
from octavo.settings import shown

_TEXT_PARTS = frozenset({"input_text", "output_text", "text"})
_SYSTEM = "system"
_ASSISTANT = "assistant"
_OWN_NAMES = (
    (re.compile(r"messages.*|prompt$"), "input"),
    (re.compile(r"response_format(\.json_schema)?"), "text.format"),
    (re.compile(r"(tools\[\d+\])\.function"), r"\1"),
)
"""Fields of a conversation, and what the body calls them."""


class InputItem(msgspec.Struct, kw_only=True):
    """A message, a thought, a call of a function, or what it brought; items of other types are refused."""

    type: str = "message"
    role: str | None = None
    content: str | list[ContentPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str = "{}"
    output: str | list[ContentPart] | None = None


class TurnTool(msgspec.Struct, kw_only=True):
    """A function that the model may call; tools of other types are refused."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class TurnToolChoice(msgspec.Struct, kw_only=True):
    """The function that must be called."""

    type: str
    name: str | None = None


class TextFormat(msgspec.Struct, kw_only=True):
    """The form of the text: `text`, `json_object`, or `json_schema` with its schema beside it."""

    type: str = "text"
    name: str | None = None
    schema_: dict[str, Any] | None = msgspec.field(name="schema", default=None)
    strict: bool | None = None


class TextOptions(msgspec.Struct, kw_only=True):
    """How the text is."""

    format: TextFormat | None = None


class Reasoning(msgspec.Struct, kw_only=True):
    """How long the model thinks, for templates that ask."""

    effort: ReasoningEffort | None = None


class TurnRequest(msgspec.Struct, kw_only=True):
    """The body, as far as it is served."""

    input: str | list[InputItem]
    model: str | None = None
    instructions: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    cache_salt: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: CacheRetention | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[TurnTool] | None = None
    tool_choice: str | TurnToolChoice | None = None
    parallel_tool_calls: bool | None = None
    # refused, but for the values that ask for nothing:
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None

    @property
    def includes_usage(self) -> bool:
        """A stream ends with the whole response, the numbers too."""
        return True

    def as_chat(self) -> ChatRequest:
        """The body as a conversation. ApiError for what cannot be served."""
        self._check()
        messages = [] if self.instructions is None else [ChatMessage(role=_SYSTEM, content=self.instructions)]
        if isinstance(self.input, str):
            messages.append(ChatMessage(role="user", content=self.input))
        else:
            _add_items(messages, self.input)
        return ChatRequest(
            messages=messages,
            model=self.model,
            max_completion_tokens=self.max_output_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            response_format=self._response_format(),
            reasoning_effort=None if self.reasoning is None else self.reasoning.effort,
            cache_salt=self.cache_salt,
            chat_template_kwargs=self.chat_template_kwargs,
            tools=[_as_tool(tool, f"tools[{index}]") for index, tool in enumerate(self.tools or ())] or None,
            tool_choice=_as_choice(self.tool_choice),
            parallel_tool_calls=self.parallel_tool_calls,
        )

    def _check(self) -> None:
        for name in ("store", "background", "previous_response_id", "conversation", "prompt"):
            if getattr(self, name):
                raise bad_request(
                    f"{name} is not supported, as this server keeps nothing between requests; leave it out, and send "
                    "the whole conversation as input",
                    param=name,
                    code="unsupported",
                )
        if not self.input:
            raise bad_request("input must not be empty", param="input")
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            raise bad_request(
                f"max_output_tokens must be 1 or more, not {self.max_output_tokens}", param="max_output_tokens"
            )

    def _response_format(self) -> ResponseFormat | None:
        wanted = None if self.text is None else self.text.format
        if wanted is None:
            return None
        if wanted.type != "json_schema":
            return ResponseFormat(type=wanted.type)
        schema = JsonSchema(name=wanted.name, schema_=wanted.schema_, strict=wanted.strict)
        return ResponseFormat(type=wanted.type, json_schema=schema)


@contextmanager
def in_own_names() -> Iterator[None]:
    """Whatever is wrong with the conversation is told of the body, which is all that its client knows."""
    try:
        yield
    except ApiError as error:
        for pattern, name in _OWN_NAMES:
            if error.param is not None and (found := pattern.match(error.param)):
                error.param = found.expand(name) + error.param[found.end() :]
        raise


def _add_items(messages: list[ChatMessage], items: list[InputItem]) -> None:
    """A thought goes with what the assistant did next. One without a text is another server's, and left out."""
    thought = ""
    for index, item in enumerate(items):
        if item.type == "reasoning":
            thought = _as_thought(item.content, f"input[{index}].content")
            continue
        if thought and item.type == "function_call":
            messages.append(ChatMessage(role=_ASSISTANT))
        _add_item(messages, item, f"input[{index}]")
        if thought and messages[-1].role == _ASSISTANT:
            messages[-1].reasoning_content = thought
        thought = ""


def _as_thought(content: str | list[ContentPart] | None, param: str) -> str:
    if not isinstance(content, list):
        return content or ""
    for part in content:
        if part.type != "reasoning_text":
            raise bad_request(f"a thought is reasoning_text, not {shown(part.type)}", param=param, code="unsupported")
    return "".join(part.text or "" for part in content)


def _add_item(messages: list[ChatMessage], item: InputItem, param: str) -> None:
    """A call belongs to the turn of the assistant that it follows."""
    match item:
        case InputItem(type="message", role=str() as role):
            content = _as_content(item.content, f"{param}.content")
            messages.append(ChatMessage(role=_SYSTEM if role == "developer" else role, content=content))
        case InputItem(type="function_call", name=str() as name):
            if not messages or messages[-1].role != _ASSISTANT:
                messages.append(ChatMessage(role=_ASSISTANT))
            call = ToolCall(id=item.call_id, function=CalledFunction(name=name, arguments=item.arguments))
            messages[-1].tool_calls = [*(messages[-1].tool_calls or ()), call]
        case InputItem(type="function_call_output", call_id=str() as call_id):
            output = _as_content(item.output, f"{param}.output")
            messages.append(ChatMessage(role="tool", tool_call_id=call_id, content=output))
        case _:
            raise bad_request(
                "only messages with a role, reasoning, function_call with a name, and function_call_output with a "
                f"call_id are served, not {shown(item.type)}",
                param=param,
                code="unsupported",
            )


def _as_content(content: str | list[ContentPart] | None, param: str) -> str | list[ContentPart] | None:
    if not isinstance(content, list):
        return content
    for part in content:
        if part.type not in _TEXT_PARTS:
            raise bad_request(f"only text is served, not {shown(part.type)}", param=param, code="unsupported")
    return [ContentPart(type="text", text=part.text or "", cache_control=part.cache_control) for part in content]


def _as_tool(tool: TurnTool, param: str) -> Tool:
    if tool.type != "function" or tool.name is None:
        raise bad_request(
            f"only functions with a name are served, not {shown(tool.type)}; run other tools yourself and offer them "
            "as functions",
            param=param,
            code="unsupported",
        )
    function = Function(name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)
    return Tool(type=tool.type, function=function)


def _as_choice(choice: str | TurnToolChoice | None) -> str | NamedTool | None:
    if not isinstance(choice, TurnToolChoice):
        return choice
    if choice.type != "function" or choice.name is None:
        raise bad_request(
            f"tool_choice may be none, auto, required, or name a function, not {shown(choice.type)}",
            param="tool_choice",
            code="unsupported",
        )
    return NamedTool(type=choice.type, function=FunctionName(name=choice.name))
