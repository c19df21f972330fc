"""How long prompts will be wanted, as clients say it: through OpenAI's own client, and by hand."""

import pytest

from octavo.chunks import HintKind, HintOutcome
from octavo.engine import Engine
from octavo.server.hints import common_tokens, hints_on_parts, hints_on_prompts
from octavo.server.requests import CacheControl, ChatMessage, ContentPart
from rigs.running_server import MODEL, serving

SYSTEM = "You are a careful librarian, and you never guess. " * 2
PROMPT = "It was a bright cold day in April, and the clocks were striking thirteen."


@pytest.fixture(scope="module")
def server(model_folder):
    """Each of whose tests looks at what is new."""
    with serving(model_folder, offload={"memory": "4MiB"}) as running:
        yield running
        running.check_nothing_is_left()


@pytest.fixture
def outcomes(server):
    """What became of hints since the test began."""

    def look():
        stats = server.ask(Engine.offload_stats)
        return {} if stats is None else dict(stats.hints)

    before = look()
    return lambda: {key: count - before.get(key, 0) for key, count in look().items() if count != before.get(key, 0)}


TAKEN = {(HintKind.RETAIN, HintOutcome.TAKEN): 1}


def complete(client, **options):
    return client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=1, **options)


def marked(text, **control):
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral", **control}}


@pytest.mark.parametrize(
    "options",
    [
        {"extra_body": {"prompt_cache_key": "april", "prompt_cache_retention": "24h"}},
        {"extra_body": {"prompt_cache_retention": "in_memory"}},
        {"extra_headers": {"X-Octavo-Retain": "300s"}},
    ],
)
def test_a_prompt_is_retained(official, server, outcomes, options):
    complete(official, **options)
    server.wait_until_idle()
    assert outcomes() == TAKEN


def test_a_chat_and_a_response_are_retained(official, server, outcomes):
    message = {"role": "user", "content": SYSTEM}
    official.chat.completions.create(
        model=MODEL, messages=[message], max_completion_tokens=1, prompt_cache_retention="24h", prompt_cache_key="x"
    )
    official.responses.create(
        model=MODEL, input=SYSTEM * 2, max_output_tokens=1, prompt_cache_retention="24h", prompt_cache_key="x"
    )
    server.wait_until_idle()
    assert outcomes() == {(HintKind.RETAIN, HintOutcome.TAKEN): 2}


def test_a_part_that_is_marked_is_a_point_that_others_resume_at(official, server, outcomes):
    def ask(question):
        messages = [{"role": "system", "content": [marked(SYSTEM, ttl="1h")]}, {"role": "user", "content": question}]
        answer = official.chat.completions.create(model=MODEL, messages=messages, max_completion_tokens=1)
        return answer.usage.prompt_tokens_details.cached_tokens

    assert ask("Who wrote it?") == 0
    server.wait_until_idle()
    assert outcomes() == TAKEN
    server.ask(lambda engine: engine.manager.reset_prefix_cache())
    assert ask("And when, by the way?") > len(SYSTEM) - 32, "a token is a byte here, and a block has 16"


def test_a_part_shorter_than_a_block_has_no_point(official, server, outcomes):
    official.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": [marked("Hi")]}], max_completion_tokens=1
    )
    server.wait_until_idle()
    assert outcomes() == {(HintKind.RETAIN, HintOutcome.NO_POINT): 1}


@pytest.mark.parametrize(
    ("body", "headers", "param"),
    [
        ({"prompt_cache_retention": "3 days"}, {}, "prompt_cache_retention"),
        ({"prompt_cache_key": 7}, {}, "prompt_cache_key"),
        ({}, {"X-Octavo-Retain": "soon"}, "X-Octavo-Retain"),
        ({}, {"X-Octavo-Retain": "0s"}, "X-Octavo-Retain"),
        ({}, {"X-Octavo-Retain": "1000h"}, "X-Octavo-Retain"),
    ],
)
def test_a_bad_value_is_named(client, body, headers, param):
    answer = client.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 1, **body}, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("control", "field"), [({"ttl": "2h"}, "ttl"), ({"type": "eternal"}, "type"), ("ephemeral", "cache_control")]
)
def test_a_bad_mark_is_named(client, control, field):
    part = {"type": "text", "text": SYSTEM, "cache_control": control}
    if isinstance(control, dict):
        part["cache_control"] = {"type": "ephemeral", **control}
    answer = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": [part]}]})
    assert answer.status_code == 400
    assert field in answer.json()["error"]["param"]


def test_five_marks_are_too_many(client):
    parts = [marked(f"{SYSTEM} {number}") for number in range(5)]
    answer = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": parts}]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "messages[0].content"


def test_the_header_goes_before_the_body():
    (hint,) = hints_on_prompts("24h", {b"x-octavo-retain": b"2h"})
    assert (hint.kind, hint.lifetime_s, hint.end_tokens) == (HintKind.RETAIN, 7200.0, None)
    assert hints_on_prompts(None, {}) == ()


def test_parts_are_found_in_their_order():
    control = CacheControl(type="ephemeral", ttl="5m")
    messages = [
        ChatMessage(role="system", content="ab ab"),
        ChatMessage(role="user", content=[ContentPart(type="text", text=" ab ", cache_control=control)]),
        ChatMessage(role="user", content=[ContentPart(type="text", text="gone", cache_control=control)]),
    ]
    hints = hints_on_parts(messages, "<s>ab ab<u>ab<u>", lambda end: end)
    assert [(hint.end_tokens, hint.lifetime_s) for hint in hints] == [(13, 300.0), (0, 300.0)]


def test_parts_that_are_not_there_are_not_looked_for_without_end(monkeypatch):
    monkeypatch.setattr("octavo.server.hints._MOST_CHARS_LOOKED_THROUGH", 100)
    gone = ChatMessage(role="assistant", content="gone")
    part = ContentPart(type="text", text="ab", cache_control=CacheControl(type="ephemeral"))
    marked = ChatMessage(role="user", content=[part])
    ends = [
        [hint.end_tokens for hint in hints_on_parts([*[gone] * number, marked], "<u>ab" * 10, lambda end: end)]
        for number in (0, 1, 2)
    ]
    assert ends == [[5], [5], [0]]


def test_a_conversation_without_marks_is_not_looked_through():
    messages = [ChatMessage(role="user", content=text) for text in ("one", [ContentPart(type="text", text="two")])]
    assert hints_on_parts(messages, None, None) == ()


def test_the_last_token_of_a_part_may_end_elsewhere():
    assert common_tokens([1, 2, 3, 4], [1, 2, 9]) == 2
