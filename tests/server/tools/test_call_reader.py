"""Calls are found in a model's text however it is cut into pieces, and nothing that is no call is lost."""

import json
import random

import pytest

from octavo.server.tools import FORMATS, End, find_format, make_reader, whole_calls
from rigs.chat_templates import TEMPLATES

BY_NAME = {form.name: form for form in FORMATS}
ODD = {"text": 'a "}] \\ b', "deep": [{"x": {}}, []], "name": "g", "none": None, "word": "é"}
CALLS = [("find", ODD), ("stop.now", {})]


SCHEMA = {
    "properties": {
        "flag": {"type": "boolean"},
        "text": {"type": "string"},
        "word": {"enum": ["é"]},
        "name": {"$ref": "#/$defs/name"},
    }
}
SCHEMAS = {name: {**SCHEMA, "$defs": {"name": {"type": "string"}}} for name in ("find", "write")}


def write(form, calls, *, separators=(", ", ": ")):
    """Calls as a model of this format writes them."""
    if form.has_channels:
        message = "<|end|><|start|>assistant"
        return message.join(f"{form.opening}{name}{form.name_end}{json.dumps(args)}" for name, args in calls)
    if form.pairs is not None:
        bodies = [
            f"{form.call_opening}{name}{form.name_end}{''.join(pair(form.pairs, *item) for item in args.items())}"
            f"{form.call_closing}"
            for name, args in calls
        ]
        around = form.around
        if form.is_block:
            return f"{form.opening}{around}{around.join(bodies)}{around}{form.closing}"
        return "\n".join(f"{form.opening}{around}{body}{around}{form.closing}" for body in bodies)
    if form.call_opening:
        inner = (
            f"{form.call_opening}{name}{form.name_end}{json.dumps(args)}{form.call_closing}" for name, args in calls
        )
        return f"{form.opening}{chr(10).join(inner)}{form.closing}"
    if form.name_end:
        return "".join(f"{form.opening}{name}{form.name_end}{json.dumps(args)}" for name, args in calls)
    objects = [json.dumps({"name": name, form.arguments_key: args}, separators=separators) for name, args in calls]
    if form.is_list:
        return f"{form.opening}[{', '.join(objects)}]"
    if form.is_bare:
        return "; ".join(objects)
    return "\n".join(f"{form.opening}\n{one}\n{form.closing}" for one in objects)


def pair(tags, key, value):
    between, written = (tags.text, value) if isinstance(value, str) else (tags.json or tags.text, json.dumps(value))
    return f"{tags.key}{key}{between}{tags.margin}{written}{tags.margin}{tags.end}\n"


def read(form, pieces, *, most_calls=None):
    """What is said, the calls, and how the calls came."""
    reader = make_reader(form, most_calls=most_calls, schemas=SCHEMAS)
    reads = [*(reader.push(piece) for piece in pieces), reader.flush()]
    calls = whole_calls(reads)
    assert all(call.call_id.startswith("call_") for call in calls)
    assert len({call.call_id for call in calls}) == reader.num_calls or most_calls is not None
    said = "".join(read.said for read in reads)
    return said, [(call.name, call.arguments) for call in calls], [piece for read in reads for piece in read.calls]


def cut(text, seed):
    chooser = random.Random(seed)
    at = sorted(chooser.sample(range(len(text)), min(len(text), chooser.choice([1, 3, 30]))))
    return [text[start:end] for start, end in zip([0, *at], [*at, len(text)], strict=True)]


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_calls_in_pieces(form):
    before = "" if form.is_bare else "I will look < it [up."
    text = (f"<|channel|>commentary<|message|>{before}<|end|>" if form.has_channels else before) + write(form, CALLS)
    for pieces in ([text], list(text), *(cut(text, seed) for seed in range(20))):
        said, calls, _ = read(form, pieces)
        assert said == before
        assert [(name, json.loads(arguments)) for name, arguments in calls] == CALLS


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_arguments_come_as_they_are_written(form):
    text = write(form, [("write", {"text": "x" * 50})])
    _, ((_, whole),), pieces = read(form, list(text))
    assert len(pieces) > 50
    assert [piece.name for piece in pieces[:2]] == ["write", None]
    assert whole == '{"text": "' + "x" * 50 + '"}'


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_only_the_first_call(form):
    _, calls, _ = read(form, [write(form, CALLS)], most_calls=1)
    assert [name for name, _ in calls] == ["find"]


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@pytest.mark.parametrize(
    "text", ["plain words", "a < b [ c", "  \n", "<tool", "[TOOL_CALLS", "{ braces }", '{"a": 1}', '{"name": 5}', "{"]
)
def test_what_is_no_call_is_said(form, text):
    for pieces in ([text], list(text)):
        assert read(form, pieces)[:2] == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\nnothing\n</tool_call>",
        '<tool_call>{"arguments": {}}</tool_call> and so on',
        '<tool_call>{"name": "f"',
        "<tool_call>{]}",
        "<tool_call>",
    ],
)
def test_what_only_begins_like_a_call_is_said(text):
    for pieces in ([text], list(text)):
        assert read(BY_NAME["hermes"], pieces)[:2] == (text, [])


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"arguments": {"a": 1}, "name": "f"}', '{"a": 1}'),
        ('{"name": "f"}', "{}"),
        ('{"name": "f", "parameters": {"a": [1]}}', '{"a": [1]}'),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', '{"a": 1}'),
        ('{"name": "f", "arguments": {"a": 1}, "parameters": {"b": 2}, "name": "g"}', '{"a": 1}'),
        ('{"arguments": {"a": 1}, "name": "f", "arguments": {}, "name": "g"}', '{"a": 1}'),
        ('{\n "name" : "f" , "arguments" :\n{ } , "id": 3}', "{ }"),
    ],
)
def test_other_ways_to_write_a_call(text, arguments):
    for pieces in ([text], list(text)):
        written = ["<tool_call>", *pieces, "</tool_call>\n"]
        assert read(BY_NAME["hermes"], written)[:2] == ("", [("f", arguments)])


@pytest.mark.parametrize("form", [form for form in FORMATS if not form.has_channels], ids=lambda form: form.name)
def test_any_mixture_of_markers(form):
    """It is read alike however it is cut, and all of it is said if no call is in it."""
    tags = [form.pairs.key, form.pairs.text, form.pairs.json, form.pairs.end] if form.pairs is not None else []
    markers = [form.opening, form.closing, form.call_opening, form.name_end, form.call_closing, *tags]
    parts = [*filter(None, markers), *"f{}[],; \n<", '{"name": "f", "arguments": {"a": "}"}}']
    for seed in range(300):
        text = "".join(random.Random(seed).choices(parts, k=1 + seed % 12))
        said, calls, _ = read(form, [text])
        for pieces in (list(text), cut(text, seed)):
            assert read(form, pieces)[:2] == (said, calls), text
        assert calls or said == text


def test_a_call_that_is_cut_off():
    said, ((name, arguments),), _ = read(BY_NAME["hermes"], ['<tool_call>{"name": "f", "arguments": {"a": "b'])
    assert (said, name, arguments) == ("", "f", '{"a": "b')


def read_cut(form, pieces, end, **options):
    """What is said, the calls, and whether the answer ended within one."""
    reader = make_reader(form, schemas=SCHEMAS, **{"most_calls": None, **options})
    reads = [*(reader.push(piece) for piece in pieces), reader.flush(end)]
    told = [(call.name, call.arguments) for call in whole_calls(reads)]
    assert len(told) == reader.num_calls or options.get("most_calls")
    return "".join(read.said for read in reads), told, reader.ends_within_call


def is_json(text):
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@pytest.mark.parametrize("end", [End.OWN, End.STOPPED])
def test_a_reader_that_waits_tells_whole_calls_only(form, end):
    """What is not whole is said, in the model's own words."""
    text = write(form, CALLS)
    for length in range(len(text)):
        begun = text[:length]
        said, calls, is_within = read_cut(form, [begun], end, waits=True)
        assert read_cut(form, list(begun), end, waits=True) == (said, calls, is_within)
        assert all(is_json(arguments) for _, arguments in calls), begun
        read = [(name, json.loads(arguments)) for name, arguments in calls]
        assert read == CALLS[: len(calls)] or form.pairs or (form.has_channels and read[-1][1] == {})
        assert said == begun or calls or form.has_channels
        _, told, is_within_told = read_cut(form, list(begun), end)
        assert is_within_told == is_within
        assert is_within or told == calls
        assert all(is_json(arguments) for _, arguments in (told[:-1] if is_within else told))


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_where_there_is_no_room_for_more_a_call_is_told_as_far_as_it_came(form):
    text = write(form, CALLS)
    for length in range(len(text)):
        told = read_cut(form, [text[:length]], End.CUT)
        assert read_cut(form, list(text[:length]), End.CUT, waits=True) == told


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_cut_call_beyond_the_most_is_left_out(form):
    text = write(form, CALLS)
    second = text.index("stop.now") + len("stop.now") + 1
    if form.name in ("hermes", "mistral", "llama"):
        second = text.index("{", second) + 1  # it is known to be a call
    for waits in (False, True):
        said, calls, is_within = read_cut(form, [text[:second]], End.STOPPED, waits=waits, most_calls=1)
        assert (said.strip(), [name for name, _ in calls], is_within) == ("", ["find"], False)


def test_words_after_calls():
    text = write(BY_NAME["hermes"], CALLS) + "\n\nDone. "
    for pieces in ([text], list(text)):
        said, calls, _ = read(BY_NAME["hermes"], pieces)
        assert (said.strip(), len(calls)) == ("Done.", 2)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("<tool_call>f</tool_call>", {}),
        ("<tool_call> f \n</tool_call>", {}),
        ("<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>", {"a": 1}),
        ("<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>\n[1]\n</arg_value>\n</tool_call>", {"a": [1]}),
        ("<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>NaN</arg_value>\n</tool_call>", {"a": "NaN"}),
        ("<tool_call>f<arg_key>a</arg_key><arg_value>x</tool_call></arg_value></tool_call>", {"a": "x</tool_call>"}),
        ("<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value>", {"a": 1}),
        ("<tool_call>find<arg_key>text</arg_key><arg_value>1</arg_value></tool_call>", {"text": "1"}),
        ("<tool_call>find<arg_key>text</arg_key><arg_value>a\n<b></arg_value></tool_call>", {"text": "a\n<b>"}),
        ("<tool_call>find<arg_key>other</arg_key><arg_value>1</arg_value></tool_call>", {"other": 1}),
    ],
)
def test_pairs(text, arguments):
    for pieces in ([text], list(text)):
        said, ((_, written),), _ = read(BY_NAME["glm"], pieces)
        assert said == ""
        assert json.loads(written if written.endswith("}") else written + "}") == arguments


@pytest.mark.parametrize(
    "text", ["<tool_call>", "<tool_call>no call", "<tool_call>f", "<tool_call><b>", '<tool_call>{"a']
)
def test_what_has_no_pairs_is_said(text):
    for pieces in ([text], list(text)):
        assert read(BY_NAME["glm"], pieces)[:2] == (text, [])


QWEN = "<tool_call>\n<function=find>\n{}</function>\n</tool_call>"
DSML = '<｜DSML｜function_calls>\n<｜DSML｜invoke name="find">\n{}</｜DSML｜invoke>\n</｜DSML｜function_calls>'


@pytest.mark.parametrize(
    ("pairs", "arguments"),
    [
        ("", {}),
        ("<parameter=text>\na\n\n b\n\n</parameter>\n", {"text": "a\n\n b\n"}),
        ("<parameter=text>\n\n</parameter>\n", {"text": ""}),
        ("<parameter=text>\n</parameter>\n", {"text": ""}),
        ("<parameter=text>1</parameter>", {"text": "1"}),
        ("<parameter=text>\n</div> < </function>\n</parameter>", {"text": "</div> < </function>"}),
        (
            "<parameter=flag>\nTrue\n</parameter>\n<parameter=other>\nTrue\n</parameter>",
            {"flag": True, "other": "True"},
        ),
        ("<parameter=flag>\nNone\n</parameter>\n<parameter=other>\n[1]\n</parameter>", {"flag": None, "other": [1]}),
    ],
)
def test_lines_between_tags(pairs, arguments):
    text = QWEN.format(pairs)
    for pieces in ([text], list(text), [*text.splitlines(keepends=True)]):
        said, ((name, written),), _ = read(BY_NAME["qwen3_coder"], pieces)
        assert (said, name, json.loads(written)) == ("", "find", arguments)


@pytest.mark.parametrize(
    ("pairs", "arguments"),
    [
        ("\n", {}),
        ('<｜DSML｜parameter name="other" string="true">1</｜DSML｜parameter>\n', {"other": "1"}),
        ('<｜DSML｜parameter name="other" string="false">1</｜DSML｜parameter>\n', {"other": 1}),
        ('<｜DSML｜parameter name="other" string="false">1 or 2</｜DSML｜parameter>', {"other": "1 or 2"}),
        (
            '<｜DSML｜parameter name="text" string="true">\n</｜DSML｜invoke>\n</｜DSML｜parameter>',
            {"text": "\n</｜DSML｜invoke>\n"},
        ),
    ],
)
def test_tags_say_what_is_text(pairs, arguments):
    text = "Soon.\n\n" + DSML.format(pairs)
    for pieces in ([text], list(text)):
        said, ((name, written),), _ = read(BY_NAME["deepseek_v3_2"], pieces)
        assert (said.rstrip(), name, json.loads(written)) == ("Soon.", "find", arguments)


@pytest.mark.parametrize(
    "text", ["<tool_call>", "<tool_call>\n<function=", "<tool_call>\n<function=f", "<tool_call>{}"]
)
def test_what_has_no_function_is_said(text):
    for pieces in ([text], list(text)):
        assert read(BY_NAME["qwen3_coder"], pieces)[:2] == (text, [])


def test_deepseek_goes_on_after_its_calls():
    for name in ("deepseek", "deepseek_v3", "deepseek_v3_2"):
        text = write(BY_NAME[name], CALLS) + "Done."
        for pieces in ([text], list(text)):
            said, calls, _ = read(BY_NAME[name], pieces)
            assert (said, len(calls)) == ("Done.", 2)


def channels(text, **options):
    answers = []
    for pieces in ([text], list(text)):
        reader = make_reader(BY_NAME["harmony"], schemas={}, **{"most_calls": None, **options})
        reads = [*(reader.push(piece) for piece in pieces), reader.flush()]
        calls = [(call.name, call.arguments) for call in whole_calls(reads)]
        answers.append(("".join(r.thought for r in reads), "".join(r.said for r in reads), calls))
    assert answers[0] == answers[1]
    return answers[0]


THOUGHT = "<|channel|>analysis<|message|>Hm < so<|end|><|start|>assistant"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (THOUGHT + "<|channel|>final<|message|>Rain.<|return|>", ("Hm < so", "Rain.", [])),
        (THOUGHT + "<|channel|>final<|message|>Rain.", ("Hm < so", "Rain.", [])),
        (THOUGHT + " to=functions.f<|channel|>commentary json<|message|>{}<|call|>", ("Hm < so", "", [("f", "{}")])),
        (" to=functions.f<|channel|>commentary<|message|>", ("", "", [("f", "{}")])),
        ("<|channel|>commentary<|message|>Soon.<|end|>" + THOUGHT, ("Hm < so", "Soon.", [])),
        ("<|channel|>commentary to=functions.a.b <|constrain|>json<|message|>{", ("", "", [("a.b", "{")])),
        ("<|channel|>analysis to=python code<|message|>1 + 1<|call|>", ("1 + 1", "", [])),
        ("<|channel|>analysis<|message|>cut o", ("cut o", "", [])),
        ("<|channel|>anal", ("", "", [])),
        ('{"a": "<|b"}', ("", '{"a": "<|b"}', [])),
    ],
)
def test_channels(text, answer):
    assert channels(text) == answer


def test_calls_that_may_not_be_are_left_out():
    assert channels(write(BY_NAME["harmony"], CALLS), most_calls=0) == (
        "".join(json.dumps(a) for _, a in CALLS),
        "",
        [],
    )


def test_mistral_writes_ids_too():
    text = '[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}'
    assert read(BY_NAME["mistral_args"], list(text))[1] == [("f", '{"a": 1}')]


def test_llama_may_mark_its_call():
    text = '<|python_tag|>{"name": "f", "parameters": {}}'
    assert read(BY_NAME["llama"], list(text))[:2] == ("", [("f", "{}")])


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("<tool_call>\n{'name': tool_call.name, 'arguments': tool_call.arguments}\n</tool_call>", "hermes"),
        ("{{ '[TOOL_CALLS]' }}{{ calls }}", "mistral"),
        ("[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}", "mistral_args"),
        ('as {"name": function name, "parameters": dictionary of argument name and its value}.', "llama"),
        *((template, name) for name, template in TEMPLATES.items()),
        ("<｜DSML｜tool_calls>{{ tools }}", None),
        ("<tool_call><function=f> arguments", None),
        ("<seed:tool_call><function=f><parameter=a>", None),
        ("{{ messages }}", None),
    ],
)  # fmt: skip
def test_a_template_shows_its_format(template, name):
    assert find_format(template) is (None if name is None else BY_NAME[name])
