"""OpenAI's own client against the server: what it sends is understood, and it understands what it gets."""

import openai
import pytest

from rigs.running_server import MODEL

PROMPT = "It was a bright cold day in April, and the clocks were striking thirteen."
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hello?"}]}]


def complete(client, **options):
    return client.completions.create(model=MODEL, **{"prompt": PROMPT, "max_tokens": 8, "temperature": 0, **options})


def chat(client, **options):
    wishes = {"messages": CHAT, "max_completion_tokens": 8, "temperature": 0, **options}
    return client.chat.completions.create(model=MODEL, **wishes)


def test_models(official):
    (model,) = official.models.list().data
    assert (model.id, model.object, model.owned_by) == (MODEL, "model", "octavo")
    assert official.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        official.models.retrieve("another")


def test_a_completion(official):
    answer = complete(official)
    assert (answer.object, answer.model, answer.id[:5]) == ("text_completion", MODEL, "cmpl-")
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.index, choice.logprobs) == ("length", 0, None)
    assert choice.text
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (len(PROMPT), 8, len(PROMPT) + 8)


def test_what_was_computed_before_is_resumed(official, server):
    prompt = "q" * 100
    cold, warm = complete(official, prompt=prompt), complete(official, prompt=prompt)
    assert cold.usage.prompt_tokens_details.cached_tokens == 0
    assert warm.usage.prompt_tokens_details.cached_tokens == 96
    assert warm.usage.prompt_tokens_details.cached_tokens_by_medium == {"device": 96}
    assert warm.choices[0].text == cold.choices[0].text
    salted = complete(official, prompt=prompt, extra_body={"cache_salt": "mine"})
    assert salted.usage.prompt_tokens_details.cached_tokens == 0
    with server.client() as client:
        assert client.post("/reset_prefix_cache").status_code == 200
    assert complete(official, prompt=prompt).usage.prompt_tokens_details.cached_tokens == 0


def test_a_stream_tells_the_same_as_the_whole(official):
    whole = complete(official, logprobs=1, max_tokens=20)
    stream = list(complete(official, logprobs=1, max_tokens=20, stream=True, stream_options={"include_usage": True}))
    pieces = [chunk.choices[0] for chunk in stream[:-1]]
    assert "".join(piece.text for piece in pieces) == whole.choices[0].text
    assert [piece.finish_reason for piece in pieces if piece.finish_reason] == ["length"]
    assert all(chunk.usage is None for chunk in stream[:-1])
    assert (stream[-1].choices, stream[-1].usage.completion_tokens) == ([], 20)
    told = [logprob for piece in pieces for logprob in piece.logprobs.token_logprobs]
    assert told == pytest.approx(whole.choices[0].logprobs.token_logprobs, abs=1e-4)
    offsets = [offset for piece in pieces for offset in piece.logprobs.text_offset]
    assert offsets == whole.choices[0].logprobs.text_offset


def test_a_chat(official):
    answer = chat(official, max_completion_tokens=30)
    assert (answer.object, answer.choices[0].message.role) == ("chat.completion", "assistant")
    assert answer.usage.prompt_tokens == len("system: Be brief.\nuser: Hello?\nassistant: ")
    stream = list(chat(official, max_completion_tokens=30, stream=True))
    assert stream[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == answer.choices[0].message.content
    assert stream[-1].choices[0].finish_reason == "length"
    assert {chunk.object for chunk in stream} == {"chat.completion.chunk"}


def test_logprobs_of_a_chat(official):
    answer = chat(official, logprobs=True, top_logprobs=3)
    tokens = answer.choices[0].logprobs.content
    assert len(tokens) == 8
    for token in tokens:
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].logprob == token.logprob  # it is greedy
        assert token.bytes == list(token.token.encode())


def test_logprobs_of_a_completion(official):
    (choice,) = complete(official, logprobs=2).choices
    logprobs = choice.logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 8
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert top[token] == pytest.approx(max(top.values()))
        assert top[token] == pytest.approx(logprob)
    assert logprobs.text_offset == sorted(logprobs.text_offset)
    for token, offset in zip(logprobs.tokens, logprobs.text_offset, strict=True):
        is_half = "\ufffd" in (token, choice.text[offset : offset + 1])
        assert is_half or choice.text.startswith(token, offset)


def test_echo(official):
    answer = complete(official, echo=True, logprobs=1, max_tokens=2)
    (choice,) = answer.choices
    assert choice.text.startswith(PROMPT)
    assert len(choice.logprobs.tokens) == len(PROMPT) + 2
    assert choice.logprobs.token_logprobs[0] is None
    assert all(logprob < 0 for logprob in choice.logprobs.token_logprobs[1:])
    prompt_only = complete(official, echo=True, logprobs=1, max_tokens=0)
    assert prompt_only.choices[0].text == PROMPT
    assert prompt_only.usage.completion_tokens == 0
    told = prompt_only.choices[0].logprobs.token_logprobs
    assert told[1:] == pytest.approx(choice.logprobs.token_logprobs[1:-2], abs=1e-4)
    streamed = "".join(chunk.choices[0].text for chunk in complete(official, echo=True, stream=True))
    assert streamed == complete(official, echo=True).choices[0].text


def test_several_prompts_and_choices(official):
    prompts = ["abc", "defg"]
    answer = complete(official, prompt=prompts, n=2, temperature=1.0, seed=5, echo=True)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text[:3] for choice in answer.choices] == ["abc", "abc", "def", "def"]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 32)
    texts = {}
    for chunk in complete(official, prompt=prompts, n=2, temperature=1.0, seed=5, echo=True, stream=True):
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
    assert texts == {choice.index: choice.text for choice in answer.choices}


def test_a_seed_makes_it_reproducible(official):
    wishes = {"temperature": 1.0, "max_tokens": 24}
    one, two, other = (complete(official, seed=seed, **wishes).choices[0].text for seed in (1, 1, 2))
    assert one == two != other


def test_stop_strings(official):
    text = complete(official, max_tokens=24).choices[0].text
    stop = text[4:7]
    choice = complete(official, max_tokens=24, stop=[stop, "never to be seen"]).choices[0]
    assert (choice.text, choice.finish_reason) == (text[: text.index(stop)], "stop")
    assert choice.stop_reason == stop
    streamed = complete(official, max_tokens=24, stop=stop, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == choice.text


def test_token_ids_in_and_out(official):
    extra = {"return_token_ids": True, "ignore_eos": True, "prompt_logprobs": 1}
    prompt = [5, 6, 7]
    choice = complete(official, prompt=prompt, extra_body=extra).choices[0]
    assert (choice.prompt_token_ids, len(choice.token_ids)) == (prompt, 8)
    assert choice.prompt_logprobs[0] is None
    assert "6" in choice.prompt_logprobs[1]
    assert choice.prompt_logprobs[1]["6"]["rank"] >= 1
    del extra["prompt_logprobs"]
    chunks = list(complete(official, prompt=prompt, stream=True, extra_body=extra))
    assert chunks[0].choices[0].prompt_token_ids == prompt
    assert [token for chunk in chunks for token in chunk.choices[0].token_ids] == choice.token_ids
    stopped = complete(official, prompt=prompt, extra_body={"stop_token_ids": choice.token_ids[:1]}).choices[0]
    assert (stopped.finish_reason, stopped.stop_reason) == ("stop", choice.token_ids[0])
    ids = complete(official, prompt=prompt, logprobs=1, extra_body={"return_tokens_as_token_ids": True})
    assert ids.choices[0].logprobs.tokens == [f"token_id:{token}" for token in choice.token_ids]


def test_errors_are_the_clients_own(official):
    with pytest.raises(openai.BadRequestError) as refused:
        complete(official, temperature=-1)
    assert (refused.value.param, refused.value.type) == ("temperature", "invalid_request_error")
    with pytest.raises(openai.NotFoundError) as unknown:
        official.completions.create(model="gpt-9", prompt="a")
    assert unknown.value.code == "model_not_found"
