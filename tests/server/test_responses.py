"""`/v1/responses` through the official client."""

import json

import httpx
import jsonschema
import pydantic
import pytest

from octavo.server.responses_items import TurnItems
from octavo.server.tools import FORMATS, CallReader, End
from rigs.running_server import MODEL

NEAR = {
    "type": "object",
    "properties": {"place": {"type": "string", "maxLength": 4}, "most": {"type": "integer", "enum": [1, 2]}},
    "required": ["place", "most"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "name": "find", "parameters": NEAR, "strict": True},
    {"type": "function", "name": "stop", "parameters": None},
]


def chat_text(client, messages, **options):
    answer = client.chat.completions.create(model=MODEL, messages=messages, temperature=0, **options)
    return answer.choices[0].message.content, answer.usage


def test_the_text_is_that_of_a_chat(official):
    parts = [{"type": "input_text", "text": "Where?"}]
    turns = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I"}]
    told = official.responses.create(
        model=MODEL,
        instructions="Be brief",
        input=[*turns, {"role": "user", "content": parts}],
        max_output_tokens=8,
        temperature=0,
        store=False,
    )
    messages = [{"role": "system", "content": "Be brief"}, *turns, {"role": "user", "content": "Where?"}]
    text, usage = chat_text(official, messages, max_completion_tokens=8)
    assert told.output_text == text
    assert (told.status, told.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (told.usage.input_tokens, told.usage.output_tokens) == (usage.prompt_tokens, 8)


def test_a_stream_tells_the_same_in_order(official):
    wishes = {"model": MODEL, "input": "Who?", "max_output_tokens": 8, "temperature": 0}
    events = list(official.responses.create(**wishes, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    assert set(kinds[4:-4]) == {"output_text.delta"}
    whole = official.responses.create(**wishes).output_text
    assert "".join(event.delta for event in events[4:-4]) == whole == events[-1].response.output_text
    assert events[-1].response.usage.output_tokens == 8


class Sheet(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=4)
    is_free: bool


def test_a_models_class_as_the_form(official):
    with official.responses.stream(
        model=MODEL, input="A sheet", text_format=Sheet, temperature=0, max_output_tokens=400
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert final.status == "completed"
    assert isinstance(final.output_parsed, Sheet)


def ask(client, **options):
    wishes = {"model": MODEL, "input": "Where?", "tools": TOOLS, "temperature": 0, "max_output_tokens": 150}
    return client.responses.create(**{**wishes, **options})


def test_a_function_is_called(official):
    told = ask(official, tool_choice={"type": "function", "name": "find"})
    (call,) = told.output
    assert (told.status, call.type, call.name, call.status) == ("completed", "function_call", "find", "completed")
    jsonschema.validate(json.loads(call.arguments), NEAR)
    assert call.call_id != call.id
    events = list(ask(official, tool_choice={"type": "function", "name": "find"}, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:3] == ["created", "in_progress", "output_item.added"]
    assert kinds[-3:] == ["function_call_arguments.done", "output_item.done", "completed"]
    assert set(kinds[3:-3]) == {"function_call_arguments.delta"}
    assert "".join(event.delta for event in events[3:-3]) == events[-3].arguments == call.arguments
    assert events[-1].response.output == [events[-2].item]
    assert (events[-2].item.name, events[2].item.name, events[2].item.arguments) == ("find", "find", "")


def test_tools_that_are_not_called(official):
    told = ask(official, max_output_tokens=5)
    assert [item.type for item in told.output] == ["message"]
    assert (told.tool_choice, told.tools[0].name) == ("auto", "find")


def test_a_conversation_with_calls_goes_on(official):
    """The prompt is that of the same conversation at `/v1/chat/completions`."""
    call = {"type": "function_call", "call_id": "call_1", "name": "find", "arguments": '{"place": "Kiel", "most": 1}'}
    output = {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "here"}]}
    turns = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Well"}]
    told = ask(official, input=[*turns, call, output], max_output_tokens=4)
    functions = [{"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}} for tool in TOOLS]
    function = {"name": call["name"], "arguments": call["arguments"]}
    turns[1] = {**turns[1], "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    turns.append({"role": "tool", "tool_call_id": "call_1", "content": "here"})
    text, usage = chat_text(official, turns, tools=functions, max_completion_tokens=4)
    assert (told.output_text, told.usage.input_tokens) == (text, usage.prompt_tokens)


def test_words_around_calls_are_messages():
    """As events and as items, in the order in which they come."""
    items = TurnItems(CallReader(next(form for form in FORMATS if form.name == "hermes")))
    text = 'Soon.<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>\n<tool_call>{"name": "g"}</tool_call>Done.'
    events = [event for char in text for event in items.add(char)] + list(items.end("incomplete", End.CUT))
    told = [(item["type"], item["status"], item.get("arguments"), item.get("content")) for item in items.told()]
    assert [(kind, status, arguments) for kind, status, arguments, _ in told] == [
        ("message", "completed", None),
        ("function_call", "completed", '{"a": 1}'),
        ("function_call", "completed", "{}"),
        ("message", "incomplete", None),
    ]
    assert [content[0]["text"] for *_, content in told if content] == ["Soon.", "Done."]
    indexes = [fields["output_index"] for _, fields in events]
    assert indexes == sorted(indexes)
    assert [fields["item"] for kind, fields in events if kind == "output_item.done"] == items.told()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"store": True}, "store"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [TOOLS[0], {"type": "function", "name": "a b"}]}, "tools[1].name"),
        ({"tools": [{**TOOLS[1], "parameters": {"type": "array"}}]}, "tools[0].parameters.type"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {"type": "objekt"}}}}, "text.format"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "a" * 100_000}]}]}, "input"),
        ({"tools": TOOLS, "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"input": ""}, "input"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0]"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "i"}]}]}, "input[0].output"),
        ({"input": [{"type": "function_call"}]}, "input[0]"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 1_000_000}, "max_output_tokens"),
        ({"model": "other"}, "model"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_refused(server, body, param):
    with server.client() as client:
        refused = client.post("/v1/responses", json={"input": "a", "max_output_tokens": 2, **body})
    assert refused.status_code == (404 if param == "model" else 400), refused.text
    assert refused.json()["error"]["param"] == param


def test_other_clients_see_what_had_no_effect(server):
    body = {"input": "a", "max_output_tokens": 1, "truncation": "auto"}
    answer = httpx.post(f"{server.url}/v1/responses", json=body, timeout=300)
    assert answer.json()["object"] == "response"
    assert answer.headers["x-octavo-ignored-fields"] == "truncation"
