"""An answer of many tokens takes long to write: meanwhile the server answers others."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from octavo.engine import Alternatives, RequestOutput, TokenLogprobs
from octavo.server.chat import ChatWriter
from octavo.server.completions import CompletionWriter
from octavo.server.generation import Piece
from octavo.server.generation_route import written
from octavo.server.logprobs import token_namer
from octavo.server.prompts import PreparedPrompt
from octavo.server.requests import CompletionRequest
from octavo.server.structure import Structure


def test_others_are_answered_while_a_long_answer_is_written(client, monkeypatch):
    begun, go_on, write = threading.Event(), threading.Event(), ChatWriter.whole

    def whole(self, choices, usage):
        begun.set()
        go_on.wait()
        return write(self, choices, usage)

    monkeypatch.setattr(ChatWriter, "whole", whole)
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "logprobs": True, "top_logprobs": 20}
    with ThreadPoolExecutor(1) as pool:
        try:
            answer = pool.submit(client.post, "/v1/chat/completions", json=body)
            begun.wait()
            assert client.get("/health").status_code == 200
        finally:
            go_on.set()
        (choice,) = answer.result().json()["choices"]
    assert [len(token["top_logprobs"]) for token in choice["logprobs"]["content"]] == [20] * 3


@pytest.mark.parametrize(("num_tokens", "is_apart"), [(1, False), (1000, True)])
def test_a_late_readers_piece_is_written_apart(num_tokens, is_apart):
    threads = set()

    def name(token_id):
        threads.add(threading.current_thread())
        return str(token_id)

    request = CompletionRequest(prompt="a", logprobs=2, stream=True)
    prompts = [PreparedPrompt(token_ids=[1], text="a")]
    writer = CompletionWriter(request, prompts, Structure(), model="m", tokenizer=None, name_token=name)
    logprobs = tuple(TokenLogprobs(i, -1.0, 1, Alternatives((i, i + 1), (-1.0, -2.0))) for i in range(num_tokens))
    output = RequestOutput(
        request_id="r",
        index=0,
        token_ids=tuple(range(num_tokens)),
        logprobs=logprobs,
        num_prompt_tokens=1,
        num_output_tokens=num_tokens,
    )
    (message,) = asyncio.run(_all_written(writer, Piece(0, output)))
    assert b'"tokens":["0"' in message
    assert (threading.main_thread() not in threads) == is_apart


async def _all_written(writer, piece):
    return list(await written(writer, piece))


def test_a_token_is_named_once(server):
    """Answers with log-probabilities name few tokens, each many times."""
    named, tokenizer = [], server.engine.engine.tokenizer

    class Tokenizer:
        def decode(self, token_ids):
            named.extend(token_ids[1:])
            return tokenizer.decode(token_ids)

        def encode(self, text, *, add_special_tokens):
            return tokenizer.encode(text, add_special_tokens=add_special_tokens)

    name = token_namer(Tokenizer(), as_ids=False)
    assert [name(5), name(6), name(5)] == [tokenizer.decode([5]), tokenizer.decode([6]), tokenizer.decode([5])]
    assert named == [5, 6]


def test_an_answer_that_would_take_all_memory_is_refused(client):
    body = {"prompt": ["a"] * 12, "n": 16, "logprobs": 128, "max_tokens": 400}
    refused = client.post("/v1/completions", json=body)
    assert refused.status_code == 400
    assert "9,830,400 alternatives" in refused.json()["error"]["message"]
    assert client.post("/v1/completions", json=body | {"max_tokens": 1}).status_code == 200
    assert client.post("/v1/completions", json=body | {"max_tokens": 1, "prompt_logprobs": 128}).status_code == 200
    of_prompts = {"prompt": [[5] * 500] * 12, "n": 16, "max_tokens": 1, "prompt_logprobs": 128}
    assert "12,288,000 alternatives" in client.post("/v1/completions", json=of_prompts).json()["error"]["message"]
