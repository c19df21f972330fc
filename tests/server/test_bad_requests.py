"""What is wrong with a request is said in OpenAI's shape, with the status that fits and the field's name."""

import json
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import pytest

from rigs.running_server import serving

IGNORED = "x-octavo-ignored-fields"
CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}
USER = {"role": "user", "content": "hi"}
VAST = "x" * 100_000


def refusal(response):
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return response.status_code, error["param"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, None),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": [[1], 2]}, "prompt[1]"),
        ({"prompt": [[1, "a"]]}, "prompt[0][1]"),
        ({"prompt": [True]}, "prompt[0]"),
        ({"prompt": [384]}, None),
        ({"prompt": [-1]}, None),
        ({"prompt": [10**30]}, None),
        ({"prompt": ["a"] * 1025}, "prompt"),
        ({"prompt": "a", "max_tokens": "5"}, "max_tokens"),
        ({"prompt": "a", "max_tokens": -1}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 512}, "max_tokens"),
        ({"prompt": "a" * 512}, "prompt"),
        ({"prompt": "a" * 1_000_000}, "prompt"),
        ({"prompt": "a", "temperature": "hot"}, "temperature"),
        ({"prompt": "a", "temperature": -0.5}, "temperature"),
        ({"prompt": "a", "top_p": 0}, "top_p"),
        ({"prompt": "a", "top_k": 1.5}, "top_k"),
        ({"prompt": "a", "min_p": 2}, "min_p"),
        ({"prompt": "a", "n": 0}, "n"),
        ({"prompt": "a", "n": 17}, "n"),
        ({"prompt": "a", "n": 10**30}, "n"),
        ({"prompt": "a", "seed": 1 << 70}, "seed"),
        ({"prompt": "a", "stop": [1]}, "stop[0]"),
        ({"prompt": "a", "stop": ["x"] * 65}, "stop"),
        ({"prompt": "a", "stop_token_ids": [500]}, "stop_token_ids"),
        ({"prompt": "a", "logprobs": 1000}, "logprobs"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "min_tokens": 30}, "min_tokens"),
        ({"prompt": "a", "presence_penalty": 3}, "presence_penalty"),
        ({"prompt": "a", "logit_bias": {"5": 100}}, "logit_bias"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "best_of": 3}, "best_of"),
        ({"prompt": "a", "cache_salt": ""}, "cache_salt"),
        ({"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options"),
        ({"prompt": "a", "stream": True, "stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"prompt": "a", "stream": True, "echo": True, "logprobs": 1}, "echo"),
        ({"prompt": "a", "stream": True, "prompt_logprobs": 1}, "prompt_logprobs"),
    ],
)
def test_a_bad_completion(client, body, param):
    assert refusal(client.post("/v1/completions", json=body)) == (400, param)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "a"}]}, "messages[0].role"),
        ({"messages": [USER, {"role": "user", "content": 5}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        ({"messages": [USER], "max_completion_tokens": 0}, "max_completion_tokens"),
        ({"messages": [USER], "max_completion_tokens": 1000}, "max_completion_tokens"),
        ({"messages": [USER], "max_tokens": 0}, "max_tokens"),
        ({"messages": [USER], "max_tokens": 1000}, "max_tokens"),
        ({"messages": [USER], "logprobs": 5}, "logprobs"),
        ({"messages": [USER], "top_logprobs": 5}, "top_logprobs"),
        ({"messages": [USER], "logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"messages": [USER], "chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs"),
        ({"messages": [USER], "add_generation_prompt": True, "continue_final_message": True}, "messages"),
    ],
)
def test_a_bad_chat(client, body, param):
    assert refusal(client.post(CHAT, json=body)) == (400, param)


@pytest.mark.parametrize("text", [r"\ud83d", r"\ud83d and more text", r"\ude00"])
def test_half_of_a_pair_is_named_wherever_it_stands(client, text):
    """msgspec calls the first of them truncated."""
    answer = client.post("/v1/completions", content='{"prompt": "' + text + '"}', headers=JSON)
    assert answer.status_code == 400
    assert "the body holds half of a surrogate pair" in answer.json()["error"]["message"]
    cut = client.post("/v1/completions", content='{"prompt": "\\ud83d\\ude00', headers=JSON)
    assert "is no JSON: Input data was truncated" in cut.json()["error"]["message"]


@pytest.mark.parametrize("field", ["max_tokens", "temperature"])
def test_a_number_of_thousands_of_digits_is_not_called_no_json(client, field):
    body = '{"prompt": "a", "' + field + '": ' + "9" * 5000 + "}"
    answer = client.post("/v1/completions", content=body, headers=JSON)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "the body has a number of too many digits"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "a", "model": VAST}),
        ("/v1/completions", {"prompt": "a", "response_format": {"type": VAST}}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": VAST}]}]}),
        (CHAT, {"messages": [USER], "tools": [{"type": VAST, "function": {"name": "f"}}]}),
        (CHAT, {"messages": [USER], "tools": [{"type": "function", "function": {"name": VAST}}]}),
        (CHAT, {"messages": [USER], "tool_choice": {"type": "function", "function": {"name": VAST}}}),
        ("/v1/responses", {"input": [{"type": VAST}]}),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": VAST}]}]}),
        ("/v1/responses", {"input": "a", "tools": [{"type": VAST}]}),
        ("/v1/responses", {"input": "a", "tool_choice": {"type": VAST}}),
    ],
)
def test_a_refusal_is_short_whatever_it_quotes(client, path, body):
    refused = client.post(path, json=body)
    assert refusal(refused)[0] in {400, 404}
    assert len(refused.content) < 500


def test_what_is_not_known_or_null_is_ignored(client):
    body = {"prompt": "a", "max_tokens": 1, "user": "me", "temperature": None, "stop": None, "n": None, "x": {"y": 1}}
    answer = client.post("/v1/completions", json=body)
    assert (answer.status_code, answer.headers[IGNORED]) == (200, "x")
    chat = {"messages": [USER], "max_tokens": 1, "tools": [], "tool_choice": "none", "metadata": {}, "store": True}
    answer = client.post(CHAT, json={**chat, "prediction": None})
    assert (answer.status_code, answer.headers.get(IGNORED)) == (200, None)


def test_what_is_ignored_is_told_in_short_and_logged_once(client, caplog):
    odd = {"verbosity": "low", "a,b\r\nx: é": 1, "y" * 1000: 1}
    body = {"messages": [USER], "max_tokens": 1, **odd, **{f"many{i}": i for i in range(20)}}
    for stream in (False, True):
        told = client.post(CHAT, json={**body, "stream": stream}).headers[IGNORED].split(", ")
        assert told[:3] == ["verbosity", "a%2Cb%0D%0Ax%3A%20%C3%A9", "y" * 64]
        assert len(told) == 16
    assert client.post(CHAT, json={**body, "n": 17}).headers[IGNORED].startswith("verbosity")
    logged = [message for message in caplog.messages if "verbosity" in message]
    assert logged == [f"clients send fields that are ignored: {', '.join(told)}"]


def test_wrong_paths_methods_and_models(client):
    assert refusal(client.post("/v1/embeddings", json={})) == (404, None)
    wrong_method = client.get("/v1/completions")
    assert refusal(wrong_method) == (405, None)
    assert wrong_method.headers["allow"] == "POST"
    assert refusal(client.delete("/reset_prefix_cache")) == (405, None)
    assert refusal(client.post("/reset_prefix_cache?tiers=perhaps")) == (400, "tiers")
    assert refusal(client.post("/v1/completions", json={"prompt": "a", "model": "b"})) == (404, "model")
    assert refusal(client.get("/v1/models/b")) == (404, "model")


def test_bodies_that_are_too_long(model_folder):
    def pieces():
        for _ in range(5):
            yield b" " * 300

    with serving(model_folder, bounds={"max_body_bytes": 1000}) as server, server.client() as client:
        said = client.post("/v1/completions", content=b" " * 1001, headers=JSON)
        unsaid = client.post("/v1/completions", content=pieces(), headers=JSON)
        assert refusal(said) == refusal(unsaid) == (413, None)
        assert said.headers["connection"] == "close"
        body = json.dumps({"prompt": "a", "max_tokens": 1})
        assert client.post("/v1/completions", content=body + " " * (1000 - len(body)), headers=JSON).status_code == 200


def test_bodies_that_are_too_long_together(model_folder):
    body = {"prompt": "a", "max_tokens": 1}
    with serving(model_folder, bounds={"max_buffered_bytes": 100}) as server, server.client() as client:
        refused = client.post("/v1/completions", content=b" " * 101, headers=JSON)
        assert refusal(refused) == (429, None)
        assert refused.headers["retry-after"] == "1"
        assert client.post("/v1/completions", json=body).status_code == 200


def test_a_full_queue(model_folder):
    body = {"prompt": "a", "max_tokens": 1}
    with serving(model_folder, max_waiting=1, max_num_seqs=1) as server, server.client() as client:
        with ThreadPoolExecutor(3) as pool, server.held_engine():
            answers = [pool.submit(client.post, "/v1/completions", json=body) for _ in range(3)]
            (told,), others = wait(answers, return_when=FIRST_COMPLETED)  # one of them is too many
        refused = told.result()
        assert refusal(refused) == (429, None)
        assert refused.headers["retry-after"] == "1"
        codes = {answer.result().status_code for answer in others}  # one seat in the queue for two that come at once
        assert {200} <= codes <= {200, 429}
        server.check_nothing_is_left()
        assert client.post("/v1/completions", json=body).status_code == 200


def test_several_prompts_are_taken_whole_or_not_at_all(server, client):
    before = server.finished().get("abort", 0)
    body = {"prompt": [[5], [6], [9999], [7]], "max_tokens": 500, "ignore_eos": True}
    assert refusal(client.post("/v1/completions", json=body)) == (400, None)
    server.check_nothing_is_left()
    assert server.finished()["abort"] == before + 3


def test_a_prompt_larger_than_the_context(client):
    response = client.post("/v1/completions", json={"prompt": [5] * 600})
    assert refusal(response) == (400, "prompt")
    assert response.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("shown", [None, "Bearer", "Bearer wrong", "Basic secret", "secret", "Bearer secretx"])
def test_the_api_key(locked, shown):
    headers = {} if shown is None else {"authorization": shown}
    for path in ("/v1/models", "/metrics", "/state", "/nothing"):
        refused = locked.get(path, headers=headers)
        assert refusal(refused) == (401, None)
        assert refused.headers["www-authenticate"] == "Bearer"
    assert refusal(locked.post("/v1/completions", json={"prompt": "a"}, headers=headers)) == (401, None)
    assert refusal(locked.post("/reset_prefix_cache", headers=headers)) == (401, None)
    assert locked.get("/health", headers=headers).status_code == 200
    assert locked.get("/", headers=headers).status_code == 200


def test_who_shows_the_key(locked):
    for scheme in ("Bearer", "bearer"):
        assert locked.get("/v1/models", headers={"authorization": f"{scheme} secret"}).status_code == 200


@pytest.fixture(scope="module")
def locked(model_folder):
    with serving(model_folder, api_key="secret") as running, running.client() as client:
        yield client


def test_a_model_without_a_chat_template(server, client, monkeypatch):
    monkeypatch.setattr(server.engine.engine.tokenizer, "chat_template", None)
    refused = client.post(CHAT, json={"messages": [USER]})
    assert refusal(refused) == (400, "messages")
    assert refused.json()["error"]["code"] == "no_chat_template"


@pytest.mark.parametrize(
    "template", ["{{ raise_exception('no system here') }}", "{{ messages[9].content }}", "{{ 1/0 }}"]
)
def test_a_template_that_refuses(server, client, monkeypatch, template):
    monkeypatch.setattr(server.engine.engine.tokenizer, "chat_template", template)
    assert refusal(client.post(CHAT, json={"messages": [USER]})) == (400, "messages")


def test_a_model_without_a_tokenizer(model_folder, tmp_path):
    for file in model_folder.iterdir():
        if "token" not in file.name and "chat_template" not in file.name:
            (tmp_path / file.name).symlink_to(file)
    with serving(tmp_path) as server, server.client() as client:
        refused = client.post("/v1/completions", json={"prompt": "text"})
        assert refusal(refused) == (400, "prompt")
        assert refused.json()["error"]["code"] == "no_tokenizer"
        assert refusal(client.post(CHAT, json={"messages": [USER]})) == (400, "messages")
        assert refusal(client.post("/v1/completions", json={"prompt": [5], "stop": "x"})) == (400, "stop")
        body = {"prompt": [5], "max_tokens": 3, "return_token_ids": True, "logprobs": 0, "echo": True}
        (choice,) = client.post("/v1/completions", json=body).json()["choices"]
        assert (choice["text"], len(choice["token_ids"])) == ("", 3)
        assert choice["logprobs"]["tokens"][0] == "token_id:5"
