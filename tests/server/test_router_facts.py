"""What a router asks of an engine's server: its facts, and the tokens of prompts."""

import pytest

from octavo.engine import published_plan
from rigs.running_server import MODEL

MESSAGES = [{"role": "user", "content": "Why is the sky blue?"}]


def test_the_facts_of_an_engine(server):
    with server.client() as client:
        facts = client.get("/engine").json()
        plan = client.get("/plan").json()
    engine = server.engine.engine
    assert facts["plan"] == plan
    assert (facts["model"], facts["max_model_len"]) == (MODEL, engine.max_model_len)
    assert (facts["hash_algorithm"], facts["hash_seed"]) == (
        engine.manager.hasher.algorithm,
        engine.manager.hasher.seed,
    )
    assert "events" not in facts
    assert published_plan(engine.manager.config).hash_block_size == plan["hash_block_size"]


@pytest.mark.parametrize("body", [{"prompt": "Why is the sky blue?"}, {"messages": MESSAGES}, {"prompt": [1, 2, 3]}])
def test_tokens_are_those_that_are_computed(server, body):
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    with server.client() as client:
        tokenized = client.post("/tokenize", json=body).json()
        usage = client.post(path, json={**body, "max_tokens": 1}).json()["usage"]
    assert tokenized["count"] == len(tokenized["tokens"]) == usage["prompt_tokens"]
    if "prompt" in body and isinstance(body["prompt"], list):
        assert tokenized["tokens"] == body["prompt"]


@pytest.mark.parametrize(
    "body", [{}, {"prompt": ["a", "b"]}, {"messages": []}, {"prompt": "a", "model": "another"}, []]
)
def test_a_body_without_one_prompt_is_refused(server, body):
    with server.client() as client:
        answer = client.post("/tokenize", json=body)
    assert answer.status_code in {400, 404}
    assert answer.json()["error"]["message"]
