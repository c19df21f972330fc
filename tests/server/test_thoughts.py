"""What a model thinks, through the official client: at `/v1/responses` as items, at `/v1/chat/completions` beside the
text; whole and in a stream."""

import openai
import pytest

from octavo.server.responses_items import TurnItems
from octavo.server.tools import ChannelReader, End
from rigs.chat_templates import TEMPLATES
from rigs.running_server import MODEL, serving
from rigs.scripted_model import save_scripted_model

ANSWER = [
    *("<|channel|>analysis<|message|>", "Hm, ", "a call.", "<|end|><|start|>assistant<|channel|>commentary<|message|>"),
    *("Soon.", "<|end|><|start|>assistant<|channel|>analysis <|message|>", "It is f."),
    *("<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>", '{"a": 1}'),
]
TOOL = {"type": "function", "name": "f", "parameters": None}
ITEMS = [("reasoning", "Hm, a call."), ("message", "Soon."), ("reasoning", "It is f."), ("function_call", '{"a": 1}')]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "thinker"
    save_scripted_model(folder, ANSWER, TEMPLATES["harmony"])
    with serving(folder) as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=300) as client:
            yield client
        server.check_nothing_is_left()


def ask(client, **options):
    wishes = {"model": MODEL, "input": "Hi", "tools": [TOOL], "temperature": 0, "store": False}
    return {**wishes, **options}


def shown(output):
    return [(one.type, one.arguments if one.type == "function_call" else one.content[0].text) for one in output]


def test_thoughts_are_items(client):
    told = client.responses.create(**ask(client))
    assert (told.status, shown(told.output)) == ("completed", ITEMS)
    assert {(item.type, item.status) for item in told.output} == {(kind, "completed") for kind, _ in ITEMS}
    assert (told.output[0].summary, told.output[0].content[0].type) == ([], "reasoning_text")
    assert told.output_text == "Soon."


def test_a_stream_tells_the_same(client):
    with client.responses.stream(**ask(client)) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert shown(final.output) == ITEMS
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[2:4] == ["output_item.added", "content_part.added"]
    of_first = [event for event in events if getattr(event, "output_index", None) == 0]
    deltas = [event.delta for event in of_first if event.type == "response.reasoning_text.delta"]
    (done,) = (event for event in of_first if event.type == "response.reasoning_text.done")
    assert "".join(deltas) == done.text == "Hm, a call."
    assert [event.type.removeprefix("response.") for event in of_first[-3:]] == [
        *("reasoning_text.done", "content_part.done", "output_item.done")
    ]


def test_a_thought_that_is_cut_off(client):
    told = client.responses.create(**ask(client, max_output_tokens=2))
    assert (told.status, told.output[0].status, shown(told.output)) == (
        *("incomplete", "incomplete"),
        [("reasoning", "Hm, ")],
    )


def test_thoughts_go_back_with_what_they_led_to(client):
    """The prompt is that of the same conversation at `/v1/chat/completions`."""
    told = client.responses.create(**ask(client))
    result = {"type": "function_call_output", "call_id": told.output[-1].call_id, "output": "1"}
    again = client.responses.create(**ask(client, input=[{"role": "user", "content": "Hi"}, *told.output, result]))
    call = {"id": told.output[-1].call_id, "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Soon.", "reasoning_content": "Hm, a call."},
        {"role": "assistant", "tool_calls": [call], "reasoning_content": "It is f."},
        {"role": "tool", "tool_call_id": call["id"], "content": "1"},
    ]
    tools = [{"type": "function", "function": {"name": "f"}}]
    chat = client.chat.completions.create(model=MODEL, messages=messages, tools=tools, temperature=0)
    assert again.usage.input_tokens == chat.usage.prompt_tokens
    assert again.usage.input_tokens > told.usage.input_tokens + len("Soon.It is f.")
    assert (chat.choices[0].message.reasoning_content, chat.choices[0].message.content) == (
        *("Hm, a call.It is f.", "Soon."),
    )


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_pieces_of_any_size_make_the_same_items(size):
    text = "".join(ANSWER)
    items = TurnItems(ChannelReader())
    events = [event for at in range(0, len(text), size) for event in items.add(text[at : at + size])]
    events += items.end("completed", End.OWN)
    told = [
        (one["type"], one["arguments"] if "arguments" in one else one["content"][0]["text"]) for one in items.told()
    ]
    assert told == ITEMS
    assert [fields["item"] for kind, fields in events if kind == "output_item.done"] == items.told()


def test_a_thought_of_something_else_is_refused(client):
    thought = {"type": "reasoning", "content": [{"type": "output_text", "text": "a"}]}
    with pytest.raises(openai.BadRequestError, match="reasoning_text"):
        client.responses.create(**ask(client, input=[thought]))
