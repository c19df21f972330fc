"""`octavo route` in front of real engines: requests go where most is resumed; none is lost or answered twice."""

import random
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import openai
import pytest

from octavo.router import ROUTER_METRICS
from rigs.running_router import RoutedEngine, RunningRouter, resumed_tokens
from rigs.running_server import ENDLESS, LONG_CONTEXT, MODEL

CHAT = [{"role": "system", "content": "Be brief, and never guess. " * 4}, {"role": "user", "content": "Hello?"}]


@pytest.fixture
def engines(model, running):
    return [running(RoutedEngine(model)) for _ in range(3)]


@pytest.fixture
def router(engines, running):
    router = running(RunningRouter([engine.url for engine in engines]))
    router.wait_until_known(len(engines))
    return router


@pytest.fixture
def official(router):
    with openai.OpenAI(base_url=f"{router.url}/v1", api_key="any", max_retries=0, timeout=300) as client:
        yield client


def complete(client, prompt, **options):
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 4, "temperature": 0, **options}
    return client.post("/v1/completions", json=body)


def test_predicted_and_resumed_tokens_agree_on_a_quiet_fleet(router, engines):
    rng = random.Random(0)
    stems = [[rng.randrange(5, 250) for _ in range(150)] for _ in range(3)]
    salted = list(zip(stems, ["", "a", "b: \N{SNOWMAN}"], strict=True))
    resumed = 0
    with router.client() as client:
        for _ in range(14):
            tail = [rng.randrange(5, 250) for _ in range(rng.randrange(40))]
            stem, salt = rng.choice(salted)
            prompt = stem[: rng.randrange(60, 150)] + tail
            answer = complete(client, prompt, **({"cache_salt": salt} if salt else {}))
            decision = router.look()["decisions"][-1]
            assert decision["num_tokens"] == len(prompt) == answer.json()["usage"]["prompt_tokens"]
            assert decision["choice"]["resumed_tokens"] == resumed_tokens(answer)
            assert answer.headers["x-octavo-expected"] == str(resumed_tokens(answer))
            assert decision["choice"]["engine"] == answer.headers["x-octavo-engine"]
            assert decision["choice"]["weighed"].keys() == {engine.name for engine in engines}
            resumed += resumed_tokens(answer)
            router.wait_until_told(engines)
    assert resumed


def test_a_chat_goes_on_where_it_began(router, engines, official):
    def ask():
        return official.chat.completions.create(model=MODEL, messages=CHAT, temperature=0, max_completion_tokens=6)

    first = ask()
    router.wait_until_told(engines)
    second = ask()
    assert second.usage.prompt_tokens_details.cached_tokens >= 16
    assert second.choices[0].message.content == first.choices[0].message.content
    assert (
        router.look()["decisions"][-1]["choice"]["resumed_tokens"] == second.usage.prompt_tokens_details.cached_tokens
    )


def test_models_are_told_as_an_engine_tells_them(router, engines, official):
    with openai.OpenAI(base_url=f"{engines[0].url}/v1", api_key="any", max_retries=0, timeout=300) as direct:
        of_engine = direct.models.retrieve(MODEL)
    (model,) = official.models.list().data
    assert model == official.models.retrieve(MODEL)
    assert model.created >= of_engine.created
    assert model.model_copy(update={"created": of_engine.created}) == of_engine
    with pytest.raises(openai.NotFoundError, match=f"there is no model 'another' here, only {MODEL}"):
        official.models.retrieve("another")


def test_a_stream_comes_through_piece_by_piece(router, engines, official):
    options = {"model": MODEL, "messages": CHAT, "temperature": 0, "max_completion_tokens": 12}
    whole = official.chat.completions.create(**options).choices[0].message.content
    with ExitStack() as held:
        for engine in engines:
            held.enter_context(engine.held_after(6))
        texts = (chunk.choices[0].delta.content for chunk in official.chat.completions.create(**options, stream=True))
        first = next(filter(None, texts))
    assert first != whole
    assert first + "".join(filter(None, texts)) == whole


def test_a_response_comes_through(router, official):
    wishes = {"model": MODEL, "input": "Who?", "max_output_tokens": 4, "temperature": 0}
    *_, last = official.responses.create(**wishes, stream=True)
    whole = official.responses.create(**wishes)
    assert last.response.output_text == whole.output_text
    decisions = [decision["num_tokens"] for decision in router.look()["decisions"]]
    assert decisions == [last.response.usage.input_tokens, whole.usage.input_tokens]


NOT_ASCII = [(name, b"\xff\xfe") for name in (b"x-session-id", b"x-request-id")]


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt": "a", "max_tokens": 1, "model": "\xff"}',
        b'{"prompt": "a", "max_tokens": 1, "other": "\xff"}',
        b'{"prompt": "a", "max_tokens": 1, "other": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"prompt": "a", "max_tokens": 1}',
        b"[]",
    ],
)
def test_what_the_router_cannot_read_an_engine_answers(router, engines, body):
    kind = [(b"content-type", b"application/json")]
    with router.client() as client, httpx.Client(base_url=engines[0].url, timeout=300) as direct:
        through = client.post("/v1/completions", content=body, headers=NOT_ASCII + kind)
        assert through.status_code == direct.post("/v1/completions", content=body, headers=NOT_ASCII + kind).status_code
        assert through.status_code < 500


def test_what_an_engine_refuses_is_refused(router, official):
    with pytest.raises(openai.BadRequestError, match="temperature"):
        official.completions.create(model=MODEL, prompt="a", temperature=-1)
    with pytest.raises(openai.NotFoundError, match="another"):
        official.completions.create(model="another", prompt="a")
    assert router.look()["retries"] == 0


def test_a_model_that_no_engine_has_is_refused_with_those_that_the_fleet_has(model, running):
    engines = [running(RoutedEngine(model, model_name=name)) for name in ("one", "other")]
    router = running(RunningRouter([engine.url for engine in engines]))
    router.wait_until_known(2)
    with router.client() as client:
        answers = [complete(client, "a", model="another") for _ in range(4)] + [client.get("/v1/models/another")]
        assert complete(client, "a", model="other").status_code == 200
    assert {answer.status_code for answer in answers} == {404}
    assert {answer.json()["error"]["code"] for answer in answers} == {"model_not_found"}
    told = {answer.json()["error"]["message"] for answer in answers}
    assert told == {"there is no model 'another' here, only one, other"}


def test_an_engine_that_has_not_told_its_models_may_have_the_one_that_is_asked_for(engines, running):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        router = running(RunningRouter([engines[0].url, f"http://127.0.0.1:{silent.getsockname()[1]}"]))
        router.wait_until_known(1)
        with router.client() as client:
            answer = complete(client, "a", model="another")
    assert answer.status_code == 503
    assert answer.json()["error"]["message"].endswith("only tiny; yet to tell theirs: 1 of 2 engines")


def test_an_engine_that_is_gone_costs_a_try_and_no_request(router, engines):
    gone, *left = engines
    gone.close()
    with router.client() as client:
        answers = [complete(client, [7 + i] * 40) for i in range(8)]
        assert [answer.status_code for answer in answers] == [200] * 8
        assert {answer.headers["x-octavo-engine"] for answer in answers} <= {engine.name for engine in left}
        seen = router.wait_until(lambda seen: not all(engine["is_reachable"] for engine in seen["engines"]))
        assert {one["name"] for one in seen["engines"] if one["is_reachable"]} == {engine.name for engine in left}
        assert client.get("/health").status_code == 200
        for engine in left:
            engine.close()
        answer = complete(client, [7] * 40)
    assert (answer.status_code, "engine" in answer.json()["error"]["message"]) in {(502, True), (503, True)}


def test_an_engine_that_is_drained_gets_nothing_new(router, engines):
    with router.client() as client:
        drained, *left = [engine.name for engine in engines]
        assert client.post(f"/fleet/{drained}/drain").json()["is_draining"]
        assert {complete(client, [9 + i] * 40).headers["x-octavo-engine"] for i in range(6)} <= {*left}
        for name in left:
            client.post(f"/fleet/{name}/drain")
        refusals = [client.get("/health"), complete(client, [9] * 40)]
        told = {(answer.status_code, answer.json()["error"]["message"]) for answer in refusals}
        assert told == {(503, "no engine takes new requests: what can be reached is drained")}
        for name in left:
            client.delete(f"/fleet/{name}/drain")
        assert not client.delete(f"/fleet/{drained}/drain").json()["is_draining"]
        assert drained in {complete(client, [90 + i] * 40).headers["x-octavo-engine"] for i in range(40)}
        assert client.post("/fleet/nobody/drain").status_code == 404


def test_a_client_that_goes_away_ends_its_request(model, running):
    engine = running(RoutedEngine(model, max_model_len=LONG_CONTEXT))
    router = running(RunningRouter([engine.url]))
    router.wait_until_known(1)
    with router.client() as client:
        body = {"model": MODEL, "prompt": [5] * 40, **ENDLESS}
        with client.stream("POST", "/v1/completions", json=body) as answer:
            next(answer.iter_raw())
        while engine.count_gone() == 0:
            client.get("/health")
    engine.check_nothing_is_left()
    assert sum(engine["open_requests"] for engine in router.look()["engines"]) == 0


def test_the_page_is_whole_and_its_numbers_are_there(router, engines):
    with router.client() as client:
        answer = complete(client, [13] * 100)
        router.wait_until_told(engines)
        page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "/* page" not in page.text
    assert "<!-- page" not in page.text
    seen = router.look()
    by_name = {engine["name"]: engine for engine in seen["engines"]}
    chosen = by_name[answer.headers["x-octavo-engine"]]
    assert chosen["blocks_on"] == {"GPU": chosen["num_blocks"]}
    assert sum(engine["num_blocks"] for engine in by_name.values()) == chosen["num_blocks"] > 0


def test_metrics_tell_what_was_sent_where(router, engines):
    with router.client() as client:
        for _ in range(2):
            complete(client, [11] * 150)
            router.wait_until_told(engines)
        text = client.get("/metrics").text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values["octavo_router_requests_total"] == "2.0"
    assert values["octavo_router_prompt_tokens_total"] == "300.0"
    assert float(values["octavo_router_expected_tokens_total"]) >= 64
    assert {values[f'octavo_router_engine_known{{engine="{engine.name}"}}'] for engine in engines} == {"1.0"}
    assert sum(float(values[f'octavo_router_engine_blocks{{engine="{engine.name}"}}']) for engine in engines) > 0
    assert values['octavo_http_answers_total{path="/v1/completions",status="200"}'] == "2.0"
    told = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert told == {metric.name for metric in ROUTER_METRICS}


def test_more_than_all_engines_may_have_is_refused(engines, running):
    router = running(RunningRouter([engine.url for engine in engines], most_open_per_engine=1))
    router.wait_until_known(len(engines))
    with router.client() as client, ThreadPoolExecutor() as clients:
        with ExitStack() as held:
            for engine in engines:
                held.enter_context(engine.held_engine())
            answers = [clients.submit(complete, client, [5 + i] * 40) for i in range(len(engines))]
            router.wait_until(lambda seen: all(engine["open_requests"] == 1 for engine in seen["engines"]))
            refused = complete(client, [9] * 40)
        assert [answer.result().status_code for answer in answers] == [200] * len(engines)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert "every engine" in refused.json()["error"]["message"]


def test_requests_of_a_later_priority_leave_room_for_others(engines, running):
    router = running(RunningRouter([engines[0].url], most_open_per_engine=4))
    router.wait_until_known(1)
    with router.client() as client, ThreadPoolExecutor() as clients, engines[0].held_engine():
        answers = [clients.submit(complete, client, [5 + i] * 40, priority=1) for i in range(3)]
        router.wait_until(lambda seen: seen["engines"][0]["open_requests"] == 3)
        assert complete(client, [9] * 40, priority=1).status_code == 429
        answers.append(clients.submit(complete, client, [9] * 40))
        router.wait_until(lambda seen: seen["engines"][0]["open_requests"] == 4)
        refused = [complete(client, [9] * 40, priority=priority) for priority in (-1, "high", None)]
    assert [answer.status_code for answer in refused] == [429, 429, 429]
    assert [answer.result().status_code for answer in answers] == [200] * 4


def test_fields_that_engines_ignore_are_named(router):
    with router.client() as client:
        answer = complete(client, [5] * 40, nonsense=1, prompt_cache_key="chat")
    assert answer.headers["x-octavo-ignored-fields"] == "nonsense"
