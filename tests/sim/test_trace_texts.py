"""Traces of texts: conversations, and requests as APIs get them, as people have them today."""

import json

import pytest

from octavo.errors import InputError
from octavo.sim import read_trace

SYSTEM = {"role": "system", "content": "be brief"}
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"what": "a sheet"}'}}


def read(folder, *records, **options):
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return read_trace(path, **options).requests


def says(role, content, **others):
    return {"role": role, "content": content} | others


def log(num_requests, **others):
    """The requests of one chat, as an API got them: each has all that was said before."""
    turns = [SYSTEM]
    for number in range(num_requests):
        turns = [*turns, says("user", f"question {number}")]
        yield {"model": "m", "messages": turns, "max_tokens": 20} | others
        turns = [*turns, says("assistant", f"the answer {number}")]


def test_a_log_of_requests_has_one_in_each_record(tmp_path):
    """Turns of assistants are a part of the prompt, and no requests of their own."""
    requests = read(tmp_path, *log(3))
    assert [(r.num_prompt_tokens, r.num_output_tokens, r.session) for r in requests] == [
        (6, 20, "1"),
        (13, 20, "1"),
        (20, 20, "1"),
    ]
    first, second, _ = [list(request.prompt()) for request in requests]
    assert second[:6] == first
    assert len(requests[0].output()) == 0, "the log does not tell"


def test_requests_that_go_on_with_others_are_of_their_session(tmp_path):
    chats = [*log(2)]
    other = {"messages": [SYSTEM, says("user", "something else")]}
    requests = read(tmp_path, chats[0], other, chats[1], chats[1] | {"session_id": "s"})
    assert [request.session for request in requests] == ["1", "2", "1", "s"]


def test_requests_have_the_times_of_their_records(tmp_path):
    """AIPerf's form of Mooncake's trace."""
    asked = [record | {"output_length": 7, "timestamp": 2000 * number} for number, record in enumerate(log(3))]
    assert [(r.arrival_s, r.num_output_tokens) for r in read(tmp_path, *asked)] == [(0, 7), (2, 7), (4, 7)]
    del asked[1]["timestamp"]
    with pytest.raises(InputError, match="line 2: timestamp is missing; it must be a number from 0"):
        read(tmp_path, *asked)
    asked[1]["delay"] = 30
    assert [(request.follows, request.delay_s) for request in read(tmp_path, *asked)][1] == ("line 1", 0.03)


@pytest.mark.parametrize("time", [{"timestamp": 2000}, {"delay": 30}, {"delay_ms": 30}])
def test_a_time_is_not_ignored_where_the_first_record_has_none(tmp_path, time):
    first, second = log(2)
    with pytest.raises(InputError, match="line 2: it has a time, and the first record has none: give it a timestamp"):
        read(tmp_path, first, second | time)


@pytest.mark.parametrize("key", ["body", "payload"])
def test_a_request_may_be_inside_a_call(tmp_path, key):
    """OpenAI's batches have a body, and AIPerf's traces a payload."""
    calls = [{"custom_id": f"r{number}", "method": "POST", key: asked} for number, asked in enumerate(log(2))]
    assert [request.num_prompt_tokens for request in read(tmp_path, *calls)] == [6, 13]


@pytest.mark.parametrize("limit", [{"max_tokens": -1}, {"max_tokens": None}, {"max_tokens": 10**6}, {}])
def test_an_answer_of_which_nothing_is_told_has_a_usual_length(tmp_path, limit):
    (request,) = read(tmp_path, {"messages": [says("user", "hi")]} | limit)
    assert request.num_output_tokens == 256


def test_prompts(tmp_path):
    """Those of vLLM's and SGLang's benchmarks, and of AIPerf."""
    first, second, third, fourth = read(
        tmp_path,
        {"prompt": "one two three", "output_tokens": 10},
        {"text_input": "one two four", "output_length": 4},
        {"prompt": "one", "completion": "five six"},
        {"prompt": "one", "output_length": None},
    )
    assert [r.num_prompt_tokens for r in (first, second, third, fourth)] == [3, 3, 1, 1]
    assert [r.num_output_tokens for r in (first, second, third, fourth)] == [10, 4, 2, 256]
    assert list(first.prompt()[:2]) == list(second.prompt()[:2])
    assert len(third.output()) == 2


def test_all_that_a_model_reads_of_a_turn_counts(tmp_path):
    """Tools before the turns, calls, their results, and texts as parts."""
    turns = [
        says("user", [{"type": "text", "text": "find it"}, {"type": "image_url", "image_url": {"url": "data:1 2 3"}}]),
        {"role": "assistant", "tool_calls": [CALL]},
        says("tool", "word " * 50, tool_call_id="c1"),
        says("assistant", "done"),
    ]
    tools = [{"type": "function", "function": {"name": "find", "description": "finds a sheet"}}]
    first, second = read(tmp_path, {"messages": turns})
    assert (first.num_prompt_tokens, first.num_output_tokens) == (3, 5)
    assert second.num_prompt_tokens == 3 + 5 + 51
    with_tools, _ = read(tmp_path, {"messages": turns, "tools": tools})
    assert with_tools.num_prompt_tokens > 3 + 8
    assert list(with_tools.prompt()[-3:]) == list(first.prompt())


def test_calls_and_results_as_parts(tmp_path):
    """Anthropic's form; the system prompt stands beside the messages."""
    use = {"type": "tool_use", "id": "t", "name": "read", "input": {"path": "a file"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "word " * 30}]}
    turns = [says("user", "hi"), says("assistant", [use]), says("user", [result]), says("assistant", "done")]
    first, second = read(tmp_path, {"system": "be brief", "messages": turns})
    assert first.num_prompt_tokens == 3 + 2
    assert second.num_prompt_tokens == 3 + 2 + 5 + 31


def test_conversations_take_turns(tmp_path):
    """Nobody else is served between two turns of a conversation, if one is open at a time."""
    said = [{"from": who, "value": "hi"} for _ in range(2) for who in ("human", "gpt")]
    chats = [{"id": name, "conversations": said} for name in ("a", "b", "c")]
    for open_sessions, order in ((1, "aabbcc"), (2, "ababcc"), (None, "abcabc")):
        requests = read(tmp_path, *chats, open_sessions=open_sessions)
        assert "".join(request.session for request in requests) == order
        assert [request.arrival_s for request in requests] == [0, 1, 2, 3, 4, 5]


def test_a_log_of_what_was_said_so_far_has_each_answer_once(tmp_path):
    """Each record goes on with one before it. Two that say the same are two."""
    turns = [SYSTEM, *(says(who, f"{who} {number}") for number in range(3) for who in ("user", "assistant"))]
    records = [{"id": f"r{end}", "messages": turns[:end]} for end in (3, 5, 7)]
    requests = read(tmp_path, *records)
    assert [request.session for request in requests] == ["1"] * 3
    whole = read(tmp_path, records[2])
    assert [list(request.prompt()) for request in requests] == [list(request.prompt()) for request in whole]
    assert [request.session for request in read(tmp_path, records[2], records[2])] == ["1", "2"] * 3
    named = [{"conversation_id": f"c{number}"} | record for number, record in enumerate(records)]
    assert [request.session for request in read(tmp_path, *named)] == ["c0", "c1", "c2", "c1", "c2", "c2"]


def test_no_more_is_read_than_is_asked_for(tmp_path):
    """A file of a gigabyte need not be read for its first hundred requests; with times of its own it must."""
    path = tmp_path / "trace.jsonl"
    chat = {"conversations": [{"from": who, "value": "hi"} for who in ("human", "gpt")]}
    path.write_text((json.dumps(chat) + "\n") * 30 + "broken")
    assert len(read_trace(path, most_requests=3, open_sessions=4).requests) == 3
    path.write_text("".join(json.dumps(each | {"timestamp": 9}) + "\n" for each in log(3)) + "broken")
    with pytest.raises(InputError, match="line 4: it is no JSON"):
        read_trace(path, most_requests=2)


def test_the_names_of_conversations(tmp_path):
    said = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]
    records = [{"conversation_hash": "h", "conversation": said}, {"id": "x", "items": said}]
    assert [request.session for request in read(tmp_path, *records)] == ["h", "x"]


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ([{"prompt": ["a", "b"]}], "line 1: prompt must be a text, not"),
        ([{"prompt": "a"}, {"prompt": " "}], "line 2: prompt must be a text, not ' '"),
        (
            [*log(1, message_mode="delta")],
            "line 1: messages has only what is new (message_mode is delta): give all that",
        ),
        ([*log(1), {"messages": []}], "line 2: messages has no turns"),
        ([*log(1), {"text": "a"}], "line 2: messages is missing; all records of a trace have one form"),
        ([{"messages": [{"role": "user"}]}], "turn 1 of messages must have from and value"),
        ([{"messages": [says("user", {"a": 1})]}], "turn 1 of messages must have from and value"),
        ([*log(1, output_length="long")], "line 1: output_length must be a whole number"),
        (
            [{"input_lens": [1], "output_lens": [2]}],
            "it has input_lens, output_lens, and lengths do not tell what requ",
        ),
        ([{f"key{number}": number for number in range(99)}], "it has key0, key1, key10, key11, key12, key13, key14, k"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, records, complaint):
    with pytest.raises(InputError, match="trace") as refused:
        read(tmp_path, *records)
    assert complaint in str(refused.value)
