"""From what a client sends to the tokens that the engine computes."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec
from jinja2 import TemplateError

from octavo.chunks import Hint
from octavo.engine import FastTokenizer
from octavo.errors import MALFORMED
from octavo.http import bad_request
from octavo.server.hints import common_tokens, hints_on_parts
from octavo.server.requests import ChatMessage, ChatRequest, CompletionRequest, ToolCall
from octavo.server.tools import ToolFormat, find_format
from octavo.settings import shown

_RESERVED_ARGUMENTS = frozenset(
    {"add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents", "max_length"}
    | {"messages", "padding", "return_assistant_tokens_mask", "return_dict", "return_tensors", "tokenize"}
    | {"tokenizer_kwargs", "tools", "truncation"}
)
"""Arguments of the call that are not the template's, so `chat_template_kwargs` may not name them."""


_EFFORT = "reasoning_effort"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPrompt:
    """One prompt, ready to be computed."""

    token_ids: list[int]
    text: str | None = None
    """The text as it was sent; None for token ids."""
    hints: Sequence[Hint] = ()
    """Hints on parts of the prompt."""


class PromptReader:
    """Turns bodies into prompts. Its work takes time in proportion to the text: not for an event loop."""

    def __init__(self, tokenizer: FastTokenizer | None, *, max_model_len: int, most_prompts: int) -> None:
        self._tokenizer = tokenizer
        self._most_prompts = most_prompts
        self._most_chars = 0 if tokenizer is None else max_model_len * _longest_token_chars(tokenizer)

    def completion(self, request: CompletionRequest) -> list[PreparedPrompt]:
        """The prompts of a completion: one, or a list of texts or of lists of token ids."""
        special = request.add_special_tokens is not False
        match request.prompt:
            case str() as text:
                return [self._of_text(text, add_special_tokens=special)]
            case []:
                raise bad_request("prompt must not be empty", param="prompt")
            case [int(), *_] as token_ids:
                return [PreparedPrompt(token_ids=_all(token_ids, int))]
            case [str(), *_] as texts:
                self._check_number(len(texts))
                return [self._of_text(text, add_special_tokens=special) for text in _all(texts, str)]
            case [list(), *_] as lists:
                self._check_number(len(lists))
                return [PreparedPrompt(token_ids=token_ids) for token_ids in _all(lists, list)]
            case _:  # the decoder lets nothing else through
                raise bad_request("prompt must be text or token ids", param="prompt")

    def chat(self, request: ChatRequest) -> PreparedPrompt:
        """A conversation as the model's own template writes it."""
        tokenizer = self._require_tokenizer("messages")
        if not tokenizer.chat_template:
            raise bad_request(
                "the model has no chat template (its tokenizer_config.json names none); use /v1/completions",
                param="messages",
                code="no_chat_template",
            )
        own = request.chat_template_kwargs or {}
        effort: dict[str, Any] = {}
        if request.reasoning_effort is not None and has_effort(tokenizer):
            effort[_EFFORT] = request.reasoning_effort
        if reserved := sorted(_RESERVED_ARGUMENTS & own.keys()):
            raise bad_request(f"chat_template_kwargs may not hold {', '.join(reserved)}", param="chat_template_kwargs")
        continues = bool(request.continue_final_message)
        generates = not continues if request.add_generation_prompt is None else request.add_generation_prompt
        form = find_format(template_of(tokenizer))
        messages = [_as_template_sees(message, index, form) for index, message in enumerate(request.messages)]
        text = _apply_template(
            lambda: tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=generates,
                continue_final_message=continues,
                tools=_tools_as_template_sees(request),
                **(effort | own),
            )
        )
        special = bool(request.add_special_tokens)  # the template wrote them
        prompt = self._of_text(text, add_special_tokens=special)
        hints = hints_on_parts(
            request.messages,
            text,
            lambda end: common_tokens(prompt.token_ids, tokenizer.encode(text[:end], add_special_tokens=special)),
        )
        return replace(prompt, hints=hints) if hints else prompt

    def _of_text(self, text: str, *, add_special_tokens: bool) -> PreparedPrompt:
        tokenizer = self._require_tokenizer("prompt")
        if len(text) > self._most_chars:
            raise bad_request(
                f"a prompt of {len(text):,} characters is longer than the longest context can be",
                param="prompt",
                code="context_length_exceeded",
            )
        try:
            token_ids = tokenizer.encode(text, add_special_tokens=add_special_tokens)
        except Exception as error:  # a tokenizer that has no token for what it does not know raises what it likes
            raise bad_request(
                f"the model's tokenizer cannot encode this text ({error}): write it in the tokenizer's own "
                "alphabet, or send token ids to /v1/completions",
                param="prompt",
            ) from error
        return PreparedPrompt(token_ids=token_ids, text=text)

    def _require_tokenizer(self, param: str) -> FastTokenizer:
        if self._tokenizer is None:
            raise bad_request(
                "the model's folder has no tokenizer: send the prompt as token ids to /v1/completions",
                param=param,
                code="no_tokenizer",
            )
        return self._tokenizer

    def _check_number(self, num_prompts: int) -> None:
        if num_prompts > self._most_prompts:
            raise bad_request(
                f"prompt may hold {self._most_prompts:,} prompts and no more, not {num_prompts:,}", param="prompt"
            )


def template_of(tokenizer: FastTokenizer) -> str:
    """The chat template, for conversations with tools where there are several; empty if there is none."""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("tool_use") or template.get("default")
    return cast("str", template or "")


def has_effort(tokenizer: FastTokenizer | None) -> bool:
    """Whether the chat template asks how long the model should think."""
    return tokenizer is not None and re.search(rf"\b{_EFFORT}\b", template_of(tokenizer)) is not None


def _longest_token_chars(tokenizer: FastTokenizer) -> int:
    vocabulary: dict[str, int] = cast("Any", tokenizer).get_vocab()
    return max(map(len, vocabulary), default=1)


def _all(items: list[Any], kind: type) -> list[Any]:
    for index, item in enumerate(items):
        if not isinstance(item, kind):
            raise bad_request(
                "prompt must be text, token ids, or a list of one of them; it is mixed", param=f"prompt[{index}]"
            )
    return items


def _as_template_sees(message: ChatMessage, index: int, form: ToolFormat | None) -> dict[str, Any]:
    parts = message.content
    if isinstance(parts, list):
        for part in parts:
            at = f"messages[{index}].content"
            if part.type != "text":
                raise bad_request(f"only text is served, not {shown(part.type)}", param=at, code="unsupported")
            if part.text is None:
                raise bad_request("a part of type text has its words as text", param=at)
        parts = "\n".join(part.text or "" for part in parts)
    wants_text = form is not None and form.wants_text
    seen: dict[str, Any] = {"role": message.role, "content": parts or ""}
    for name in ("name", "reasoning_content", "tool_call_id"):
        if (value := getattr(message, name)) is not None:
            seen[name] = value
    if message.tool_calls:
        seen["tool_calls"] = [_call_as_template_sees(call, as_text=wants_text) for call in message.tool_calls]
    if form is not None and form.has_channels and message.reasoning_content:
        seen["thinking"] = message.reasoning_content
    return seen


def _call_as_template_sees(call: ToolCall, *, as_text: bool) -> dict[str, Any]:
    """Most templates write arguments as JSON themselves, so they want them as an object."""
    arguments: Any = call.function.arguments
    if as_text:
        arguments = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    elif isinstance(arguments, str):
        with suppress(*MALFORMED):
            arguments = msgspec.json.decode(arguments)
    function = {"name": call.function.name, "arguments": arguments}
    return {"type": call.type, "function": function} | ({} if call.id is None else {"id": call.id})


def _tools_as_template_sees(request: ChatRequest) -> list[dict[str, Any]] | None:
    """They stay where none may be called: the prompt begins as it did, and what is cached of it can be resumed."""
    if not request.tools:
        return None
    seen: list[dict[str, Any]] = []
    for tool in request.tools:
        about = msgspec.structs.asdict(tool.function)
        seen.append(
            {"type": tool.type, "function": {name: value for name, value in about.items() if value is not None}}
        )
    return seen


def _apply_template(apply: Callable[[], str]) -> str:
    """A template is a program of the model's authors, which may refuse a conversation or trip over it."""
    try:
        return apply()
    except TemplateError as error:
        raise bad_request(f"the chat template refuses the messages: {error}", param="messages") from None
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise bad_request(f"the chat template cannot write the messages: {error}", param="messages") from None
