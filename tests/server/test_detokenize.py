"""Tokens as text again, and what a chat template is told of how long to think."""

import pytest

CHAT = "/v1/chat/completions"
HEADER = "x-octavo-ignored-fields"


def test_tokens_and_back(client):
    text = "é <s> 7"
    tokens = client.post("/tokenize", json={"prompt": text, "add_special_tokens": False}).json()["tokens"]
    assert client.post("/detokenize", json={"tokens": tokens, "model": "tiny"}).json() == {"prompt": text}
    assert client.post("/detokenize", json={"tokens": []}).json() == {"prompt": ""}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "tokens"),
        ({"tokens": "a"}, "tokens"),
        ({"tokens": [5, -1]}, "tokens[1]"),
        ({"tokens": [384]}, "tokens[0]"),
        ({"tokens": [10**30]}, "tokens[0]"),
        ({"tokens": [5] * 513}, "tokens"),
        ({"tokens": [5], "model": "x"}, "model"),
    ],
)
def test_what_is_refused(client, body, param):
    refused = client.post("/detokenize", json=body)
    assert refused.status_code == (404 if param == "model" else 400)
    assert refused.json()["error"]["param"] == param


def test_reasoning_effort(server, client, monkeypatch):
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "reasoning_effort": "low"}
    assert client.post(CHAT, json=body).headers[HEADER] == "reasoning_effort"
    monkeypatch.setattr(server.engine.engine.tokenizer, "chat_template", "{{ reasoning_effort }}!")
    tokens = client.post("/tokenize", json=body).json()["tokens"]
    assert client.post("/detokenize", json={"tokens": tokens}).json() == {"prompt": "low!"}
    own = {**body, "chat_template_kwargs": {"reasoning_effort": "own"}}
    tokens = client.post("/tokenize", json=own).json()["tokens"]
    assert client.post("/detokenize", json={"tokens": tokens}).json() == {"prompt": "own!"}
    answer = client.post(CHAT, json=body)
    assert (answer.status_code, HEADER in answer.headers) == (200, False)
    refused = client.post(CHAT, json={**body, "reasoning_effort": "utmost"}).json()["error"]
    assert refused["param"] == "reasoning_effort"
    assert "minimal" in refused["message"]
