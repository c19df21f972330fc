"""Tools and forms of answers through the official client. Models are random: that forms fit is the grammars' work."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Literal

import jsonschema
import openai
import pydantic
import pytest
from transformers import AutoTokenizer

from octavo.engine import save_tiny_model
from rigs.chat_templates import MARKERS, TEMPLATES
from rigs.running_server import MODEL, serving
from rigs.scripted_model import rename_token

USER = [{"role": "user", "content": "Weather?"}]
WEATHER = {
    "type": "object",
    "properties": {"place": {"$ref": "#/$defs/place"}, "unit": {"enum": ["C", "F"]}},
    "required": ["place", "unit"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "string", "maxLength": 5}},
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "By place", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "mcp/stop.now", "parameters": None}},
]


@pytest.fixture(scope="module", params=["hermes", *TEMPLATES])
def any_format(request, tmp_path_factory):
    """A server of a model that writes calls in its own way; the markers of some are special tokens."""
    folder = tmp_path_factory.mktemp(request.param)
    save_tiny_model("gemma3", folder)
    if template := TEMPLATES.get(request.param):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        for number, marker in enumerate(MARKERS.get(request.param, ())):
            rename_token(folder, f"<{300 + number}>", marker)
        tokenizer.chat_template = template
        (folder / "chat_template.jinja").write_text(template)
    with serving(folder, max_model_len=2048) as running:
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key="any", max_retries=0, timeout=300) as client:
            yield client
        running.check_nothing_is_left()


@pytest.fixture(scope="module")
def server(model_folder):
    with serving(model_folder, max_model_len=2048) as running:
        yield running
        running.check_nothing_is_left()


def chat(client, **options):
    wishes = {"messages": USER, "max_completion_tokens": 800, "temperature": 0, "model": MODEL, **options}
    return client.chat.completions.create(**wishes)


def test_a_named_tool_is_called(any_format):
    named = {"type": "function", "function": {"name": "get_weather"}}
    (choice,) = chat(any_format, tools=TOOLS, tool_choice=named).choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "get_weather")
    jsonschema.validate(json.loads(call.function.arguments), WEATHER)


def test_some_tool_is_called_in_a_stream(any_format):
    wishes = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "temperature": 1.0}
    whole = chat(any_format, seed=3, **wishes)
    calls, ends = {}, {}
    for chunk in chat(any_format, seed=3, stream=True, **wishes):
        for choice in chunk.choices:
            ends[choice.index] = choice.finish_reason
            assert not choice.delta.content
            for piece in choice.delta.tool_calls or ():
                assert piece.index == 0
                if piece.id is not None:
                    assert choice.index not in calls
                    calls[choice.index] = (piece.function.name, "")
                name, arguments = calls[choice.index]
                calls[choice.index] = (name, arguments + piece.function.arguments)
    assert ends == {0: "tool_calls"}
    told = {c.index: c.message.tool_calls[0].function for c in whole.choices}
    assert calls == {index: (function.name, function.arguments) for index, function in told.items()}
    for name, arguments in calls.values():
        assert name in ("get_weather", "mcp/stop.now")
        assert isinstance(json.loads(arguments), dict)


def test_tools_that_are_not_called(any_format):
    for choice in ("auto", "none"):
        (told,) = chat(any_format, tools=TOOLS, tool_choice=choice, max_completion_tokens=20).choices
        assert told.finish_reason == "length"
        assert told.message.tool_calls is None


def test_json_or_a_call_in_any_format(any_format):
    message = json_or_a_call(any_format, "auto")
    assert message.tool_calls or jsonschema.validate(json.loads(message.content), WEATHER) is None


def json_or_a_call(client, choice):
    form = {"type": "json_schema", "json_schema": {"schema": WEATHER}}
    told = chat(client, tools=TOOLS, tool_choice=choice, response_format=form, parallel_tool_calls=False)
    return told.choices[0].message


def test_a_conversation_with_calls_goes_on(official):
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"place": "Kiel"}'}}
    messages = [*USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    messages.append({"role": "tool", "tool_call_id": "call_1", "content": "rain"})
    answer = chat(official, messages=messages, tools=TOOLS, max_completion_tokens=2)
    template = "<tool_call>\n" + json.dumps({"name": "get_weather", "arguments": {"place": "Kiel"}}) + "\n</tool_call>"
    before = chat(official, tools=TOOLS, max_completion_tokens=2).usage.prompt_tokens
    assert answer.usage.prompt_tokens == before + len(f"assistant: {template}\ntool: rain\n")


def test_tools_stay_in_the_prompt_where_none_may_be_called(official):
    """So what is cached of the prompt is resumed."""
    chat(official, tools=TOOLS, max_completion_tokens=1)
    again = chat(official, tools=TOOLS, tool_choice="none", max_completion_tokens=1).usage
    assert again.prompt_tokens_details.cached_tokens > 0.9 * again.prompt_tokens - 16


class Sheet(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=4)
    pages: list[int] = pydantic.Field(max_length=2)
    is_free: bool | None


def test_a_models_class_as_the_form(official):
    wishes = {"messages": USER, "model": MODEL, "temperature": 0, "response_format": Sheet}
    answer = official.chat.completions.parse(**wishes, max_completion_tokens=800)
    assert isinstance(answer.choices[0].message.parsed, Sheet)


def test_a_schema_in_a_stream(official):
    form = {"type": "json_schema", "json_schema": {"name": "w", "strict": True, "schema": WEATHER}}
    text = "".join(c.choices[0].delta.content or "" for c in chat(official, response_format=form, stream=True))
    jsonschema.validate(json.loads(text), WEATHER)


def test_any_json(official):
    (choice,) = chat(official, response_format={"type": "json_object"}, max_completion_tokens=60).choices
    assert choice.message.content.startswith("{")


def test_json_where_no_tool_may_be_called(official):
    message = json_or_a_call(official, "none")
    assert not message.tool_calls
    jsonschema.validate(json.loads(message.content), WEATHER)


@pytest.mark.parametrize(
    ("wanted", "pattern"),
    [
        ({"choice": ["sheet", 'a "page"']}, 'sheet|a "page"'),
        ({"regex": "[0-9]{2}/x"}, "[0-9]{2}/x"),
        ({"grammar": 'start: ("ab" | "cd"){2}'}, "(ab|cd){2}"),
        ({"json": {"const": "a"}}, '"a"'),
        ({"json": {"const": "<s>é</s><s"}}, '"<s>é</s><s"'),
        ({"choice": ["<s>", "<s></s>"]}, "<s>(</s>)?"),
    ],
)
def test_structured_outputs(official, wanted, pattern):
    answer = official.completions.create(
        model=MODEL, prompt=["a", "b"], max_tokens=40, extra_body={"structured_outputs": wanted}
    )
    assert all(re.fullmatch(pattern, choice.text) for choice in answer.choices)
    assert {choice.finish_reason for choice in answer.choices} == {"stop"}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_stream_can_be_read_by_lines_whatever_ends_a_line(client, path):
    """httpx ends a line at each of these characters."""
    said = "\u2028a\x85\u2029\x0b\x0c\x1e\ré"
    wishes = {
        "prompt": "a",
        "messages": USER,
        "stream": True,
        "structured_outputs": {"choice": [said]},
        "max_tokens": 99,
    }
    with client.stream("POST", path, json=wishes) as answer:
        *events, done = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert done == "[DONE]"
    choices = [json.loads(event)["choices"][0] for event in events]
    assert (
        "".join(choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices)
        == said
    )


def test_a_dead_end_is_an_end(official):
    """What was said before the grammar let nothing follow is told, whole and in a stream; neighbours go on."""
    wanted = {"structured_outputs": {"grammar": 'start: /aa/ %json {"$ref": "#"}'}}
    (choice,) = chat(official, extra_body=wanted).choices
    assert (choice.message.content, choice.finish_reason) == ("aa", "error")
    assert choice.stop_reason.startswith("the grammar cannot be followed")
    pieces = [chunk.choices[0] for chunk in chat(official, extra_body=wanted, stream=True)]
    assert "".join(piece.delta.content or "" for piece in pieces) == "aa"
    assert (pieces[-1].finish_reason, pieces[-1].stop_reason) == ("error", choice.stop_reason)
    both = official.completions.create(model=MODEL, prompt=["a", "b"], max_tokens=9, n=2, extra_body=wanted).choices
    assert [(one.text, one.finish_reason, one.stop_reason) for one in both] == [("aa", "error", choice.stop_reason)] * 4


def schema(inner):
    return {"response_format": {"type": "json_schema", "json_schema": {"strict": True, "schema": inner}}}


def tool(name="f", **parameters):
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


DEEP = {"type": "string"}
for _ in range(60):
    DEEP = {"type": "array", "items": DEEP, "minItems": 1}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (schema({"type": "objekt"}), "response_format"),
        (schema({"$ref": "#"}), "response_format"),
        (schema({"$ref": "#/$defs/none"}), "response_format"),
        (schema({"$ref": "https://example.org/a"}), "response_format"),
        (schema({"type": "array", "uniqueItems": True}), "response_format"),
        (schema({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "response_format"),
        ({"structured_outputs": {"json": {"oneOf": [{"const": "a"}, {"type": "string"}]}}}, "structured_outputs"),
        ({"structured_outputs": {"json": {"oneOf": [{}] * 9000}}}, "structured_outputs"),
        (schema({"enum": ["x" * 100_000]}), "response_format"),
        (schema({"type": "string", "pattern": "(" * 3000}), "response_format"),
        (schema({"type": "string", "pattern": "^(a|b){3000}[^x]{3000}$", "format": "odd"}), "response_format"),
        (schema(None), "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
        ({"structured_outputs": {"grammar": "start: nobody"}}, "structured_outputs"),
        ({"structured_outputs": {"choice": ["a"]}, **schema({})}, "structured_outputs"),
        ({"structured_outputs": {"choice": ["a"]}, "tools": [tool()]}, "structured_outputs"),
        ({**schema({}), "min_tokens": 5}, "min_tokens"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{**tool(), "type": "web"}]}, "tools[0].type"),
        ({"tools": [tool(), tool()]}, "tools[1].function.name"),
        ({"tools": [tool("get weather")]}, "tools[0].function.name"),
        ({"tools": [tool('a"}')]}, "tools[0].function.name"),
        ({"tools": [tool("<tool_call>")]}, "tools[0].function.name"),
        ({"tools": [tool("é")]}, "tools[0].function.name"),
        ({"tools": [tool("")]}, "tools[0].function.name"),
        ({"tools": [tool()], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": {"type": "auto"}}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"tools": [tool(), tool("g", type="array")]}, "tools[1].function.parameters.type"),
        ({"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [tool(type="objekt")], "tool_choice": "required"}, "tools"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_what_is_refused(server, body, param):
    with server.client() as client:
        refused = client.post("/v1/chat/completions", json={"messages": USER, "max_tokens": 20, **body})
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["param"] == param
    assert len(refused.json()["error"]["message"]) < 500


def test_deep_and_recursive_schemas_are_taken(official):
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}, "leaf": {"type": "null"}}}
    for taken in (DEEP, tree):
        (choice,) = chat(official, **schema(taken), max_completion_tokens=8).choices
        assert choice.finish_reason in ("length", "stop")


class Cat(pydantic.BaseModel, extra="forbid"):
    kind: Literal["cat"] = "cat"
    lives: Literal[9] | None = None


class Dog(pydantic.BaseModel, extra="forbid"):
    kind: Literal["dog"] = "dog"


class Pet(pydantic.BaseModel, extra="forbid"):
    pet: Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]


@pytest.mark.parametrize("seed", range(6))
def test_an_answer_fits_one_branch(official, seed):
    """Though neither class requires its tag."""
    wanted = {"structured_outputs": {"json": Pet.model_json_schema()}}
    (choice,) = chat(official, extra_body=wanted, temperature=1.0, seed=seed).choices
    assert choice.finish_reason == "stop"
    jsonschema.validate(json.loads(choice.message.content), Pet.model_json_schema())


def test_others_are_served_while_a_large_grammar_is_compiled(server, official):
    large = {"type": "object", "properties": {f"k{i}": {"type": "string", "pattern": "^a+$"} for i in range(800)}}
    with ThreadPoolExecutor(1) as pool:
        compiled = pool.submit(chat, official, **schema(large), max_completion_tokens=2)
        answers = 0
        while not compiled.done() or not answers:
            assert chat(official, max_completion_tokens=1).choices
            answers += 1
        assert compiled.exception() is None or isinstance(compiled.exception(), openai.BadRequestError)


def test_a_template_without_tools(server, official, monkeypatch):
    monkeypatch.setattr(server.engine.engine.tokenizer, "chat_template", "{{ messages[0].content }}")
    with pytest.raises(openai.BadRequestError, match="no place for tools") as refused:
        chat(official, tools=TOOLS)
    assert refused.value.param == "tools"
    assert chat(official, tools=TOOLS, tool_choice="none", max_completion_tokens=1).choices
