"""Where words hold the space before them, a completion begins with the space of its first word: whole, streamed, and
in what is told of its tokens."""

import json

import pytest
from transformers import AutoTokenizer

from octavo.engine import save_tiny_model
from rigs.running_server import MODEL, serving
from rigs.spaced_words import save_spaced_words

PROMPT = "la fi bo"
WISHES = {
    "model": MODEL,
    "prompt": PROMPT,
    "max_tokens": 12,
    "n": 16,
    "seed": 7,
    "logprobs": 2,
    "return_token_ids": True,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "spaced"
    save_tiny_model("gemma3", folder)
    save_spaced_words(folder, num_bytes=2)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def server(folder):
    with serving(folder) as running:
        yield running
        running.check_nothing_is_left()


def complete(client, **options):
    answer = client.post("/v1/completions", json={**WISHES, **options})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


def stream(client, path="/v1/completions", **body):
    with client.stream("POST", path, json={**body, "stream": True}) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    return [choice for line in lines for choice in json.loads(line)["choices"]]


def test_a_text_goes_on_from_its_prompt(client, tokenizer):
    choices = complete(client)
    assert any(choice["text"].startswith(" ") for choice in choices)
    before = tokenizer.decode(choices[0]["prompt_token_ids"], skip_special_tokens=True)
    for choice in choices:
        all_tokens = [*choice["prompt_token_ids"], *choice["token_ids"]]
        assert before + choice["text"] == tokenizer.decode(all_tokens, skip_special_tokens=True)


@pytest.mark.parametrize("prompt", [PROMPT, [50, 60], [[50, 3]], [[1]], [[50, *[2] * 9]]])
def test_a_stream_and_an_echo_tell_the_same(client, prompt):
    """Also behind half a character, and where nothing before has a text."""
    whole = complete(client, prompt=prompt)
    texts, offsets = [""] * 16, [[] for _ in range(16)]
    for piece in stream(client, **WISHES | {"prompt": prompt}):
        texts[piece["index"]] += piece["text"]
        offsets[piece["index"]] += [] if piece["logprobs"] is None else piece["logprobs"]["text_offset"]
    assert texts == [choice["text"] for choice in whole]
    assert offsets == [choice["logprobs"]["text_offset"] for choice in whole]
    echoed = complete(client, prompt=prompt, echo=True)
    before = echoed[0]["text"][: len(echoed[0]["text"]) - len(texts[0])]
    assert [choice["text"] for choice in echoed] == [before + text for text in texts]
    number = len(echoed[0]["prompt_token_ids"])
    for choice, own in zip(echoed, offsets, strict=True):
        assert choice["logprobs"]["text_offset"][number:] == [len(before) + offset for offset in own]


@pytest.mark.parametrize("echo", [False, True])
def test_tokens_are_where_the_text_has_them(client, echo):
    num_seen = 0
    for choice in complete(client, echo=echo):
        told = choice["logprobs"]
        assert told["text_offset"] == sorted(told["text_offset"])
        for token, offset in zip(told["tokens"], told["text_offset"], strict=True):
            is_first = echo and offset == 0  # its space is none of the text's
            if token.isascii() and not token.startswith("<"):
                assert choice["text"].startswith(token.removeprefix(" ") if is_first else token, offset)
                num_seen += 1
    assert num_seen > 50


def test_stop_strings_see_the_space(client):
    texts = [choice["text"] for choice in complete(client)]
    number = next(i for i, text in enumerate(texts) if text.startswith(" "))
    choice = complete(client, stop=[texts[number][:2]])[number]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("", "stop", texts[number][:2])


def test_a_chat_begins_a_text_of_its_own_unless_it_goes_on(client, tokenizer):
    wishes = {"model": MODEL, "n": 16, "seed": 7, "max_tokens": 6, "logprobs": True, "return_token_ids": True}
    messages = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": " la"}]
    num_spaced = 0
    for goes_on in (False, True):
        body = wishes | {"messages": messages, "continue_final_message": goes_on}
        choices = client.post("/v1/chat/completions", json=body).json()["choices"]
        named = [[] for _ in choices]
        for piece in stream(client, "/v1/chat/completions", **body):
            named[piece["index"]] += [one["token"] for one in (piece["logprobs"] or {"content": []})["content"]]
        for choice, names in zip(choices, named, strict=True):
            text, tokens = choice["message"]["content"], choice["token_ids"]
            before = tokenizer.encode("la", add_special_tokens=False) if goes_on else []
            assert tokenizer.decode(before) + text == tokenizer.decode([*before, *tokens], skip_special_tokens=True)
            num_spaced += text.startswith(" ")
            assert names == [one["token"] for one in choice["logprobs"]["content"]]
            if all(name and name.isascii() and not name.startswith("<") for name in names):
                assert "".join(names) == text
        assert (num_spaced > 0) == goes_on
