"""From what a client sends to the tokens that the engine computes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from jinja2 import TemplateError

from octavo.engine import FastTokenizer
from octavo.server.errors import ApiError, bad_request
from octavo.server.requests import ChatMessage, ChatRequest, CompletionRequest

_RESERVED_ARGUMENTS = frozenset(
    {"add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents", "max_length"}
    | {"messages", "padding", "return_assistant_tokens_mask", "return_dict", "return_tensors", "tokenize"}
    | {"tokenizer_kwargs", "tools", "truncation"}
)
"""What `chat_template_kwargs` may not be: arguments of the call that are not the template's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPrompt:
    """One prompt, ready to be computed."""

    token_ids: list[int]
    text: str | None = None
    """As it was sent; None for token ids."""


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
        if reserved := sorted(_RESERVED_ARGUMENTS & own.keys()):
            raise bad_request(f"chat_template_kwargs may not hold {', '.join(reserved)}", param="chat_template_kwargs")
        continues = bool(request.continue_final_message)
        generates = not continues if request.add_generation_prompt is None else request.add_generation_prompt
        messages = [_as_template_sees(message, place) for place, message in enumerate(request.messages)]
        text = _apply_template(
            lambda: tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=generates,
                continue_final_message=continues,
                **own,
            )
        )
        return self._of_text(text, add_special_tokens=bool(request.add_special_tokens))  # the template wrote them

    def _of_text(self, text: str, *, add_special_tokens: bool) -> PreparedPrompt:
        tokenizer = self._require_tokenizer("prompt")
        if len(text) > self._most_chars:
            raise bad_request(
                f"a prompt of {len(text):,} characters is longer than the longest context can be",
                param="prompt",
                code="context_length_exceeded",
            )
        return PreparedPrompt(token_ids=tokenizer.encode(text, add_special_tokens=add_special_tokens), text=text)

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


def _longest_token_chars(tokenizer: FastTokenizer) -> int:
    vocabulary: dict[str, int] = cast("Any", tokenizer).get_vocab()
    return max(map(len, vocabulary), default=1)


def _all(items: list[Any], kind: type) -> list[Any]:
    for place, item in enumerate(items):
        if not isinstance(item, kind):
            raise bad_request(
                "prompt must be text, token ids, or a list of one of them; it is mixed", param=f"prompt[{place}]"
            )
    return items


def _as_template_sees(message: ChatMessage, place: int) -> dict[str, Any]:
    parts = message.content
    if isinstance(parts, list):
        for part in parts:
            if part.type != "text" or part.text is None:
                raise bad_request(
                    f"only text is served, not {part.type!r}", param=f"messages[{place}].content", code="unsupported"
                )
        parts = "\n".join(part.text or "" for part in parts)
    seen: dict[str, Any] = {"role": message.role, "content": "" if parts is None else parts}
    for name in ("name", "reasoning_content", "tool_calls", "tool_call_id"):
        if (value := getattr(message, name)) is not None:
            seen[name] = value
    return seen


def _apply_template(apply: Callable[[], str]) -> str:
    """A template is a program of the model's authors, which may refuse a conversation or trip over it."""
    try:
        return apply()
    except ApiError:
        raise
    except TemplateError as error:
        raise bad_request(f"the chat template refuses the messages: {error}", param="messages") from None
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise bad_request(f"the chat template cannot write the messages: {error}", param="messages") from None
