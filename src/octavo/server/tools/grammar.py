"""The text of a grammar for calls of tools, as a model's format writes them."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from octavo.engine import json_rule
from octavo.server.tools.formats import PairTags, ToolFormat
from octavo.server.tools.markers import is_marker, split_markers
from octavo.server.tools.text_arguments import DEFINITIONS, Schema, find_property, is_text, texts_of

Terminal = Callable[[str], str]
"""How a marker is written in a grammar: as its token where the model has one, else as text."""

_MOST_CALLS = 16
"""The most calls of an answer that must call a tool; without a bound, some models never end."""
_NO_ARGUMENTS = {"additionalProperties": False}


def calls_rule(form: ToolFormat, tools: Mapping[str, Schema], terminal: Terminal, *, is_parallel: bool) -> str:
    """The rule `calls` of a Lark grammar, and those that it names."""
    lines = [f"call: {' | '.join(f'call_{number}' for number in range(len(tools)))}"]
    lines += [
        f"call_{number}: {_call(form, name, schema, terminal)}" for number, (name, schema) in enumerate(tools.items())
    ]
    is_parallel &= not form.has_channels  # whose models end an answer behind a call
    return "\n".join([f"calls: {_calls(form, terminal, is_parallel=is_parallel)}", *lines])


def answer_rule(form: ToolFormat, text: str, terminal: Terminal) -> str:
    """The rule `answer`, from a grammar whose first rule is `start`: an answer that calls nothing."""
    opening = _marked(form.answer_opening, terminal)
    return text.replace("start:", f"answer: {opening} wanted\nwanted:" if opening else "answer:", 1)


def _calls(form: ToolFormat, terminal: Terminal, *, is_parallel: bool) -> str:
    opening, closing = _marked(form.opening, terminal), _marked(form.closing, terminal)
    if form.is_list:
        return _join(opening, '"["', "call", _repeated('", " call') if is_parallel else "", '"]"')
    if form.is_bare:
        return "call"
    around = _text(form.around)
    if form.is_block:
        more = _repeated(_join(around, "call")) if is_parallel else ""
        return _join(opening, around, "call", more, around, closing)
    one = _join(opening, around, "call", around, closing)
    return _join(one, _repeated(_join(around, one)) if is_parallel else "")


def _repeated(rule: str) -> str:
    return f"({rule}){{0,{_MOST_CALLS - 1}}}"


def _call(form: ToolFormat, name: str, schema: Schema, terminal: Terminal) -> str:
    opening, closing = _marked(form.call_opening, terminal), _marked(form.call_closing, terminal)
    begun = _join(opening, _text(name), _marked(form.name_end, terminal))
    if form.pairs is not None:
        return _join(begun, *_pairs(form.pairs, schema or _NO_ARGUMENTS, terminal), closing)
    arguments = json_rule({"type": "object", **(schema or _NO_ARGUMENTS)}, is_strict=False)
    if form.name_end:
        return _join(begun, arguments, closing)
    return _join(_text(f'{{"name": {json.dumps(name)}, "{form.arguments_key}": '), arguments, _text("}"))


def _pairs(tags: PairTags, schema: Mapping[str, Any], terminal: Terminal) -> Iterator[str]:
    """Each argument in turn; those that are not required are options. A text's pattern and format are not enforced."""
    properties, required = schema.get("properties"), schema.get("required")
    for key, own in properties.items() if isinstance(properties, dict) else ():
        about = find_property(schema, key)
        value = _text_value(about, tags.end) if is_text(about) else _value(schema, own)
        between = tags.text if is_text(about) else tags.json or tags.text
        pair = _join(_marked(tags.key, terminal), _text(key), _marked(between, terminal))
        margin = _text(tags.margin)
        pair = _join(pair, margin, value, margin, _marked(tags.end, terminal), _text("\n"))
        yield pair if isinstance(required, list) and key in required else f"({pair})?"


def _value(schema: Mapping[str, Any], about: Any) -> str:
    definitions = {name: schema[name] for name in DEFINITIONS if name in schema}
    return json_rule({**definitions, **(about if isinstance(about, dict) else {})}, is_strict=False)


def _text_value(about: Mapping[str, Any], end: str) -> str:
    if texts := texts_of(about):
        return f"({' | '.join(map(json.dumps, texts))})"
    least, most = about.get("minLength"), about.get("maxLength")
    if isinstance(least, int) or isinstance(most, int):
        return rf"/[^<]{{{least if isinstance(least, int) else 0},{most if isinstance(most, int) else ''}}}/"
    return f"/[^<]*(<{_without(end[1:])})*/"


def _without(end: str) -> str:
    """A pattern of texts that have no `<` and do not begin with an end."""
    char, rest = re.escape(end[0]).replace("/", r"\/"), end[1:]
    return f"([^{char}<][^<]*|{char}{_without(rest)})?" if rest else f"([^{char}<][^<]*)?"


def _marked(text: str, terminal: Terminal) -> str:
    """A text with markers in it."""
    return _join(*(terminal(piece) if is_marker(piece) else _text(piece) for piece in split_markers(text)))


def _text(text: str) -> str:
    return json.dumps(text) if text else ""


def _join(*parts: str) -> str:
    return " ".join(filter(None, parts))
