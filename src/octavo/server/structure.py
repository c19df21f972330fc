"""`StructureReader`: makes a grammar from what a request says about the form of its answer, and readers of its calls.

Each grammar is compiled by a thread of its own, one at a time: neither the event loop nor the engine waits for one,
even if it takes minutes.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from octavo.engine import FastTokenizer, Grammar, GrammarCompiler, find_added_token, json_grammar, regex_grammar
from octavo.errors import InputError
from octavo.http import PatientCalls, bad_request
from octavo.server.prompts import template_of
from octavo.server.requests import ChatRequest, CompletionRequest, ResponseFormat, StructuredOutputs
from octavo.server.tools import AnswerReader, ToolFormat, answer_rule, calls_rule, find_format, make_reader, shows_tools
from octavo.settings import shown

_T = TypeVar("_T")
_PATIENCE_S = 30.0
"""How long a grammar may be compiled; large ones take a second or two."""
_MOST_CHOICES = 1 << 14
"""No grammar has room for more: they are counted before millions of them are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """The form of an answer."""

    grammar: Grammar | None = None
    make_reader: Callable[[bool], AnswerReader] | None = None
    """Makes a reader for each choice, if an answer may hold thoughts or calls. True: it waits for whole calls."""
    shows_special_tokens: bool = False
    """Whether the text must hold special tokens, as they mark calls."""


class StructureReader:
    """Reads forms of answers for one model."""

    def __init__(self, tokenizer: FastTokenizer | None, grammars: GrammarCompiler | None) -> None:
        self._tokenizer = tokenizer
        self._grammars = grammars
        self._compiling = PatientCalls(name="grammar", at_once=1)

    async def read(self, request: CompletionRequest | ChatRequest) -> Structure:
        """The form that a request asks for; ApiError where it cannot be had."""
        wanted = _answer_rule(request)
        if not isinstance(request, ChatRequest) or (form := self._find_format(request)) is None:
            return Structure(grammar=None if wanted is None else await self._compile(*wanted))
        may_call = _may_call(request)
        wanted = self._with_calls(request, form, wanted) if may_call else self._without_calls(request, form, wanted)
        most_calls = 0 if not may_call else 1 if request.parallel_tool_calls is False else None
        schemas = {tool.function.name: tool.function.parameters for tool in request.tools or ()}
        return Structure(
            grammar=None if wanted is None else await self._compile(*wanted),
            make_reader=lambda waits: make_reader(form, most_calls=most_calls, schemas=schemas, waits=waits),
            shows_special_tokens=self._has_special_markers(form),
        )

    def _find_format(self, request: ChatRequest) -> ToolFormat | None:
        """The format of an answer that may hold calls, or has channels. None where all of the text is said."""
        if self._tokenizer is None:
            return None
        template = template_of(self._tokenizer)
        form = find_format(template)
        if not _may_call(request):
            return form if form is not None and form.has_channels else None
        if form is None or not shows_tools(template):
            has_place = shows_tools(template)
            knows = "writes calls in a way that is not known here" if has_place else "has no place for tools"
            raise bad_request(f"the model's chat template {knows}; leave tools out", param="tools", code="unsupported")
        return form

    def _has_special_markers(self, form: ToolFormat) -> bool:
        markers = (None if self._tokenizer is None else find_added_token(self._tokenizer, m) for m in form.markers)
        return any(marker is not None and marker.is_special for marker in markers)

    def _without_calls(
        self, request: ChatRequest, form: ToolFormat, wanted: tuple[str, str] | None
    ) -> tuple[str, str] | None:
        """The grammar behind the header that the model would write. A grammar of the client's own stands as it is."""
        if wanted is None or request.structured_outputs is not None:
            return wanted
        return wanted[0], f"start: answer\n{answer_rule(form, wanted[1], self._terminal)}"

    def _with_calls(
        self, request: ChatRequest, form: ToolFormat, wanted: tuple[str, str] | None
    ) -> tuple[str, str] | None:
        """The grammar where calls may stand beside the answer that is wanted, or must."""
        choice, tools = request.tool_choice or "auto", request.tools or ()
        schemas = {tool.function.name: tool.function.parameters for tool in tools}
        if choice == "auto":
            if wanted is None:
                return None
            param, text = wanted
            rules = calls_rule(form, schemas, self._terminal, is_parallel=request.parallel_tool_calls is not False)
            return param, f"start: answer | calls\n{answer_rule(form, text, self._terminal)}\n{rules}"
        is_parallel = choice == "required" and request.parallel_tool_calls is not False
        if not isinstance(choice, str):
            schemas = {choice.name: schemas[choice.name]}
        return "tools", f"start: calls\n{calls_rule(form, schemas, self._terminal, is_parallel=is_parallel)}"

    def _terminal(self, marker: str) -> str:
        """A marker that is a token of its own must come as that token: as text it could not be read."""
        token = None if self._tokenizer is None else find_added_token(self._tokenizer, marker)
        return json.dumps(marker) if token is None else f"<[{token.token_id}]>"

    async def _compile(self, param: str, text: str) -> Grammar:
        if self._grammars is None:
            raise bad_request(f"{param} needs a tokenizer, and the model's folder has none", param=param)
        if (kept := self._grammars.find(text)) is not None:
            return kept
        try:
            return await self._compiling.run(partial(self._grammars.compile, text), patience_s=_PATIENCE_S)
        except TimeoutError:
            raise bad_request(
                f"{param}: the grammar takes more than {_PATIENCE_S:g} s to compile; simplify it", param=param
            ) from None
        except InputError as error:
            raise bad_request(str(error), param=param) from None


def _may_call(request: ChatRequest) -> bool:
    return bool(request.tools) and request.tool_choice != "none"


def _answer_rule(request: CompletionRequest | ChatRequest) -> tuple[str, str] | None:
    """The field that asks for a form, and a grammar's text; None where any text will do."""
    if request.structured_outputs is not None:
        if request.response_format is not None and request.response_format.type != "text":
            raise bad_request("give structured_outputs or response_format, not both", param="structured_outputs")
        if isinstance(request, ChatRequest) and _may_call(request):
            raise bad_request(
                "structured_outputs do not go with tools; use response_format", param="structured_outputs"
            )
        return _naming("structured_outputs", _structured, request.structured_outputs)
    if request.response_format is None or request.response_format.type == "text":
        return None
    return _naming("response_format", _formatted, request.response_format)


def _naming(param: str, write: Callable[[_T], str], wanted: _T) -> tuple[str, str]:
    """A field, and the grammar's text that it asks for."""
    try:
        return param, write(wanted)
    except InputError as error:
        raise bad_request(str(error), param=param) from None


def _formatted(wanted: ResponseFormat) -> str:
    match wanted.type:
        case "json_object":
            return json_grammar({"type": "object"})
        case "json_schema":
            about = wanted.json_schema
            if about is None or about.schema_ is None:
                raise bad_request("json_schema needs a schema", param="response_format.json_schema.schema")
            return json_grammar(about.schema_, is_strict=bool(about.strict))
        case other:
            raise bad_request(f"there is no response format {shown(other)}", param="response_format.type")


def _structured(wanted: StructuredOutputs) -> str:
    match wanted:
        case StructuredOutputs(json=dict() as schema, regex=None, choice=None, grammar=None):
            return json_grammar(schema)
        case StructuredOutputs(json=None, regex=str() as pattern, choice=None, grammar=None):
            return regex_grammar(pattern)
        case StructuredOutputs(json=None, regex=None, choice=[*texts], grammar=None) if texts and all(texts):
            return _one_of(texts)
        case StructuredOutputs(json=None, regex=None, choice=None, grammar=str() as text):
            return text
        case _:
            raise bad_request(
                "structured_outputs take exactly one of json, regex, choice, grammar, and no empty one",
                param="structured_outputs",
            )


def _one_of(texts: Sequence[str]) -> str:
    if len(texts) > _MOST_CHOICES:
        raise bad_request(
            f"structured_outputs.choice may hold {_MOST_CHOICES:,} texts and no more, not {len(texts):,}",
            param="structured_outputs",
        )
    return f"start: {' | '.join(map(json.dumps, texts))}"
