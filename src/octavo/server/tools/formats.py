r"""`ToolFormat`: how a family of models writes a call of a tool. The chat template shows which one a model was taught.

hermes        <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>        Hermes, Qwen, SmolLM3, ...
mistral       [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...]                Mistral until 2024
mistral_args  [TOOL_CALLS]f[ARGS]{...}[TOOL_CALLS]g[ARGS]{...}                    Mistral since 2025
llama         {"name": "f", "parameters": {...}}, or the same after <|python_tag|>   Llama 3 and 4
glm           <tool_call>f\n<arg_key>k</arg_key>\n<arg_value>v</arg_value>\n</tool_call>       GLM-4.5 and later
qwen3_coder   <tool_call>\n<function=f>\n<parameter=k>\nv\n</parameter>\n</function>\n</tool_call>   Qwen3-Coder
deepseek_v3   <calls begin><call begin>function<sep>f\n```json\n{...}\n```<call end>...<calls end>   DeepSeek V3, R1
deepseek      <calls begin><call begin>f<sep>{...}<call end>...<calls end>        DeepSeek V3.1
deepseek_v3_2 <DSML function_calls>\n<DSML invoke name="f">\n<DSML parameter name="k" string="true">v...  DeepSeek V3.2
harmony       <|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}           gpt-oss
"""

import re
from dataclasses import dataclass

from octavo.server.tools.markers import is_marker, split_markers

_CODE = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)
"""The parts of a template that are code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTags:
    """How a format writes one argument without JSON around it."""

    key: str
    """Before the key."""
    text: str
    """Between the key and a value that is text."""
    json: str = ""
    """Between the key and any other value; empty: the same, and the tool's schema says which values are text."""
    end: str
    """Behind the value."""
    margin: str = ""
    """Before and behind a value, and no part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """One way to write calls."""

    name: str
    signs: tuple[str, ...]
    """A template that holds all of them is of this format."""
    opening: str
    """Begins a call, or a list of calls."""
    closing: str = ""
    """Ends one; empty: nothing does."""
    call_opening: str = ""
    """Begins each call, within an opening; empty: nothing but the call does."""
    call_closing: str = ""
    """Ends each call."""
    is_block: bool = False
    """Whether one opening and one closing are around all calls."""
    around: str = ""
    """Stands between markers and calls."""
    arguments_key: str = "arguments"
    is_list: bool = False
    """Whether one opening begins a JSON array of calls."""
    name_end: str = ""
    """Stands between a bare name and its arguments; empty: the call is an object that holds both."""
    is_bare: bool = False
    """Whether an answer that is nothing but the call's object is a call too. The model writes it so when it must."""
    pairs: PairTags | None = None
    """The tags, of a format whose arguments stand between tags."""
    has_channels: bool = False
    """Whether every answer is parted into messages with headers, which hold thoughts, texts or a call."""
    answer_opening: str = ""
    """Stands before an answer that calls nothing."""
    wants_text: bool = False
    """Whether the template takes a call's arguments as text."""

    @property
    def markers(self) -> list[str]:
        """All markers, which a model may have as tokens."""
        texts = [self.opening, self.call_opening, self.name_end, self.call_closing, self.closing]
        if (tags := self.pairs) is not None:
            texts += [tags.key, tags.text, tags.json, tags.end]
        return [piece for text in texts for piece in split_markers(text) if is_marker(piece)]


FORMATS = (
    ToolFormat(
        name="mistral_args", signs=("[TOOL_CALLS]", "[ARGS]"), opening="[TOOL_CALLS]", name_end="[ARGS]"
    ),
    ToolFormat(name="mistral", signs=("[TOOL_CALLS]",), opening="[TOOL_CALLS]", is_list=True),
    ToolFormat(
        name="glm",
        signs=("<tool_call>", "<arg_key>", "<arg_value>"),
        opening="<tool_call>",
        closing="</tool_call>",
        name_end="\n",
        pairs=PairTags(key="<arg_key>", text="</arg_key>\n<arg_value>", end="</arg_value>"),
    ),
    ToolFormat(
        name="qwen3_coder",
        signs=("<tool_call>", "<function=", "<parameter="),
        opening="<tool_call>",
        closing="</tool_call>",
        call_opening="<function=",
        call_closing="</function>",
        around="\n",
        name_end=">\n",
        pairs=PairTags(key="<parameter=", text=">", end="</parameter>", margin="\n"),
    ),
    ToolFormat(
        name="hermes", signs=("<tool_call>", "arguments"), opening="<tool_call>", closing="</tool_call>", around="\n"
    ),
    ToolFormat(
        name="llama",
        signs=('{"name": function name, "parameters": dictionary of argument name and its value}',),
        opening="<|python_tag|>",
        arguments_key="parameters",
        is_bare=True,
    ),
    ToolFormat(
        name="deepseek_v3",
        signs=("<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>", "```json"),
        opening="<｜tool▁calls▁begin｜>",
        closing="<｜tool▁calls▁end｜>",
        call_opening="<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        name_end="\n```json\n",
        call_closing="\n```<｜tool▁call▁end｜>",
        is_block=True,
        wants_text=True,
    ),
    ToolFormat(
        name="deepseek",
        signs=("<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>"),
        opening="<｜tool▁calls▁begin｜>",
        closing="<｜tool▁calls▁end｜>",
        call_opening="<｜tool▁call▁begin｜>",
        name_end="<｜tool▁sep｜>",
        call_closing="<｜tool▁call▁end｜>",
        is_block=True,
        wants_text=True,
    ),
    ToolFormat(
        name="deepseek_v3_2",
        signs=("DSML", "function_calls"),
        opening="<｜DSML｜function_calls>",
        closing="</｜DSML｜function_calls>",
        call_opening='<｜DSML｜invoke name="',
        call_closing="</｜DSML｜invoke>",
        is_block=True,
        around="\n",
        name_end='">\n',
        pairs=PairTags(
            key='<｜DSML｜parameter name="',
            text='" string="true">',
            json='" string="false">',
            end="</｜DSML｜parameter>",
        ),
    ),
    ToolFormat(
        name="harmony",
        signs=("<|start|>", "<|channel|>", "<|message|>"),
        opening="<|channel|>commentary to=functions.",
        name_end=" <|constrain|>json<|message|>",
        has_channels=True,
        answer_opening="<|channel|>final<|message|>",
    ),
)  # fmt: skip
_TELLING = ("<function=", "<parameter=", "DSML")
"""Signs of formats. A template that holds one is of a format that has it, or of none that is known."""


def find_format(template: str) -> ToolFormat | None:
    """The format that a chat template teaches; None for one that is not known."""
    shown = {sign for sign in _TELLING if sign in template}
    known = (form for form in FORMATS if shown <= set(form.signs))
    return next((form for form in known if all(sign in template for sign in form.signs)), None)


def shows_tools(template: str) -> bool:
    """Whether a chat template tells the model of the tools. Some only write calls that were made."""
    return any(re.search(r"\btools\b", code) for code in _CODE.findall(template))
