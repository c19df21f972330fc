"""A call that is cut by a client's stop string, or that its model left unfinished, is none: whole and in streams."""

import json

import openai
import pytest

from rigs.running_server import MODEL, serving
from rigs.scripted_model import save_scripted_model

TEMPLATE = """{% if tools %}<tool_call>{"name": "f", "arguments": {}}</tool_call>{% endif %}
{%- for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}assistant:"""
SAID, CALL = "I will look. ", '<tool_call>\n{"name": "f", "arguments": {"a": "one two"}}\n</tool_call>'
ANSWER = [SAID, "<tool_call>", '\n{"name": "f", ', '"arguments": {"a": "one', ' two"', "}}", "\n</tool_call>"]
TOOL = {"type": "function", "function": {"name": "f", "parameters": None}}


@pytest.fixture(scope="module", params=[len(ANSWER), len(ANSWER) - 2])
def script(request, tmp_path_factory):
    """A client of a model that writes a call, whole or not."""
    folder = tmp_path_factory.mktemp("models") / "caller"
    save_scripted_model(folder, ANSWER[: request.param], TEMPLATE)
    with serving(folder) as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=300) as client:
            yield client, "".join(ANSWER[: request.param])
        server.check_nothing_is_left()


def whole(client, **options):
    """Content, calls, and how the answer ended."""
    wishes = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "tools": [TOOL], "temperature": 0}
    (choice,) = client.chat.completions.create(**wishes, **options).choices
    calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
    return choice.message.content, calls, choice.finish_reason, choice.stop_reason


def streamed(client, **options):
    wishes = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "tools": [TOOL], "temperature": 0}
    said, calls, ends = "", [], []
    for chunk in client.chat.completions.create(**wishes, **options, stream=True):
        (choice,) = chunk.choices
        said += choice.delta.content or ""
        for piece in choice.delta.tool_calls or ():
            if piece.id:
                calls.append((piece.function.name, ""))
            calls[-1] = (calls[-1][0], calls[-1][1] + piece.function.arguments)
        ends.append((choice.finish_reason, choice.stop_reason))
    return said, calls, *ends[-1]


@pytest.mark.parametrize("stop", ["two", "one", '{"a"', "arguments", "tool_call>\n", ["never", '"one tw']])
def test_a_stop_string_within_a_call(script, stop):
    client, text = script
    found = stop if isinstance(stop, str) else stop[1]
    cut = text[: text.index(found)]
    for ask in (whole, streamed):
        assert ask(client, stop=stop) == (cut, [], "stop", found)


def test_a_stop_string_behind_a_call(script):
    client, text = script
    is_whole = text.endswith(CALL)
    told = (SAID, [("f", '{"a": "one two"}')], "tool_calls") if is_whole else (text, [], "stop")
    for stop in ("</tool_call>", "\n</", "never"):
        found = stop if stop in text else None
        for ask in (whole, streamed):
            assert ask(client, stop=stop) == (*told, found)


def test_no_room_for_the_rest_of_a_call(script):
    client, _ = script
    tokens = ANSWER.index(' two"')
    for stop in (None, "never"):
        for ask in (whole, streamed):
            assert ask(client, stop=stop, max_completion_tokens=tokens) == (SAID, [("f", '{"a": "one')], "length", None)


def test_a_call_that_its_model_leaves_unfinished(script):
    client, text = script
    is_whole = text.endswith(CALL)
    assert whole(client) == (
        (SAID, [("f", '{"a": "one two"}')], "tool_calls", None) if is_whole else (text, [], "stop", None)
    )
    told = streamed(client)
    assert told[0] == SAID
    assert told[2] == ("tool_calls" if is_whole else "stop")
    assert json.loads(told[1][0][1] + ("" if is_whole else "}")) == {"a": "one two"}, "as it came"


def test_the_same_at_responses(script):
    client, text = script
    is_whole = text.endswith(CALL)
    wishes = {"model": MODEL, "input": "Hi", "tools": [{"type": "function", "name": "f", "parameters": None}]}
    told = client.responses.create(**wishes, temperature=0)
    assert told.status == "completed"
    assert [(item.type, item.status) for item in told.output] == [("message", "completed")] + [
        ("function_call", "completed")
    ] * is_whole
    assert told.output_text == (SAID if is_whole else text)
    events = list(client.responses.create(**wishes, temperature=0, stream=True))
    items = events[-1].response.output
    status = "completed" if is_whole else "incomplete"
    assert [(item.type, item.status) for item in items] == [("message", "completed"), ("function_call", status)]
    assert (events[-1].type, events[-1].response.status) == ("response.completed", "completed")
