"""A real Envoy asks `octavo epp` where each request goes; two real engines of a hybrid model answer."""

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import urlsplit

import httpx
import msgspec
import openai
import pytest

pytest.importorskip("envoy", reason="needs octavo[epp] and Envoy: make test-fleet")

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from octavo.http import Load, read_tenants
from rigs.running_envoy import RunningEnvoy, RunningPicker
from rigs.running_router import RoutedEngine, resumed_tokens
from rigs.running_server import MODEL

pytestmark = pytest.mark.fleet
CHAT = [{"role": "system", "content": "Be brief, and never guess. " * 4}, {"role": "user", "content": "Hello?"}]

LONG = list(range(5, 165))


@pytest.fixture
def engines(folder, running):
    return [running(RoutedEngine(folder)) for _ in range(2)]


@pytest.fixture
def picker(engines, running):
    picker = running(RunningPicker([engine.url for engine in engines]))
    picker.wait_until_known(len(engines))
    return picker


@pytest.fixture
def envoy(picker, engines, running, tmp_path):
    return running(RunningEnvoy(picker, engines, tmp_path))


def complete(client, prompt, headers=None, **options):
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 4, "temperature": 0, **options}
    return client.post("/v1/completions", json=body, headers=headers)


def num_finished(engine):
    return engine.finished().get("length", 0)


def last_choice(picker):
    return picker.ask(lambda server: server.picker.decisions.last[-1].choice)


def open_at(server):
    """By engine, the requests that count there."""
    return {name: load.num_requests for name, load in server.fleet.placement.loads.items()}


def test_predicted_and_resumed_tokens_agree_and_answers_are_the_engines_own(envoy, picker, engines):
    rng = random.Random(0)
    stems = [[rng.randrange(5, 250) for _ in range(150)] for _ in range(3)]
    resumed = 0
    with envoy.client() as client, engines[0].client() as direct:
        for _ in range(12):
            prompt = rng.choice(stems)[: rng.randrange(60, 150)] + [rng.randrange(5, 250) for _ in range(20)]
            answer = complete(client, prompt)
            assert last_choice(picker).resumed_tokens == resumed_tokens(answer)
            resumed += resumed_tokens(answer)
            assert answer.json()["choices"] == complete(direct, prompt).json()["choices"]
            picker.wait_until_told(engines)
    assert resumed
    assert sum(num_finished(engine) for engine in engines) == 24


def test_engines_tell_other_pickers_of_a_request(envoy, picker, engines):
    loads = [engine.server.service.load for engine in engines]
    with envoy.client() as client, ThreadPoolExecutor() as clients, ExitStack() as held:
        for engine in engines:
            held.enter_context(engine.held_engine())
        sent = clients.submit(complete, client, LONG)
        with engines[0].client() as asking:
            while not any(load.others("another").requests for load in loads):
                asking.get("/health")
        told = [load.others("another") for load in loads]
        own = picker.ask(lambda server: [one.others for one in server.fleet.placement.loads.values()])
    assert sorted(told, key=msgspec.structs.astuple) == [Load(), Load(requests=1, prefill_tokens=len(LONG))]
    assert own == [Load(), Load()]
    assert sent.result().status_code == 200


def test_the_official_client_gets_chats_and_streams(envoy, picker, engines):
    with openai.OpenAI(base_url=f"{envoy.url}/v1", api_key="any", max_retries=0, timeout=300) as client:
        options = {"model": MODEL, "messages": CHAT, "temperature": 0, "max_completion_tokens": 12}
        whole = client.chat.completions.create(**options)
        picker.wait_until_told(engines)
        with ExitStack() as held:
            for engine in engines:
                held.enter_context(engine.held_after(6))
            stream = client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True})
            chunks = [next(chunk for chunk in stream if chunk.choices[0].delta.content)]  # before the answer's end
        chunks += stream
        assert [model.id for model in client.models.list().data] == [MODEL]
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == whole.choices[0].message.content != pieces[0]
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens >= 16
    picker.wait_until(lambda server: server.admission.num_open == 0)


def test_a_long_body_goes_through_in_pieces(envoy, engines):
    with envoy.client() as client:
        answer = client.post("/v1/completions", json={"model": MODEL, "prompt": [5] * 40, "user": "x" * 300_000})
        assert answer.status_code == 200


def test_what_an_engine_refuses_is_refused(envoy):
    as_json = {"content-type": "application/json"}
    with envoy.client() as client:
        assert complete(client, [5] * 40, temperature=-1).status_code == 400
        assert client.post("/v1/completions", content=b"{", headers=as_json).status_code == 400


def test_a_request_goes_only_where_it_may(envoy, engines):
    with envoy.client() as client:
        for engine in engines:
            before = num_finished(engine)
            for number in range(3):
                answer = complete(client, [7 + number] * 40, headers={"x-test-subset": engine.name})
                assert answer.status_code == 200
            assert num_finished(engine) == before + 3
        refused = complete(client, [7] * 40, headers={"x-test-subset": "127.0.0.1:9"})
    assert refused.status_code == 503
    assert "no engine that this request may use is ready" in refused.json()["error"]["message"]


def test_an_engine_that_is_gone_costs_no_request(envoy, picker, engines):
    with envoy.client() as client:
        engines[0].close()
        assert [complete(client, [7 + number] * 40).status_code for number in range(8)] == [200] * 8
        picker.wait_until(lambda server: server.fleet.ready == [engines[1].name])
        assert complete(client, [7] * 40).status_code == 200
        engines[1].close()
        picker.wait_until(lambda server: not server.fleet.ready)
        refused = complete(client, [7] * 40)
    assert (refused.status_code, refused.json()["error"]["message"]) == (503, "no engine can be reached")
    assert refused.headers["retry-after"] == "1"


def test_a_session_goes_on_where_it_was_answered(picker, engines, running, tmp_path):
    """Envoy knows one of the engines alone, so it takes the second that was named where the other was first."""
    first, second = engines
    envoy = running(RunningEnvoy(picker, [second], tmp_path))
    with first.client() as client:
        assert complete(client, LONG).status_code == 200
    picker.wait_until_told([first])
    picker.wait_until(lambda server: not any(open_at(server).values()))  # what others have sent there counts too
    chosen = []
    with envoy.client(headers={"x-session-id": "one"}) as client:
        for prompt in (LONG, LONG[::-1]):
            assert complete(client, prompt).status_code == 200
            chosen.append(last_choice(picker).engine)
    assert chosen == [first.name, second.name]


def test_too_many_requests_are_shed(folder, running, tmp_path):
    engine = running(RoutedEngine(folder))
    picker = running(RunningPicker([engine.url], most_open=1, max_body_bytes=5000))
    picker.wait_until_known(1)
    envoy = running(RunningEnvoy(picker, [engine], tmp_path))
    with envoy.client() as client, ThreadPoolExecutor(1) as other:
        with engine.held_engine():
            asked = other.submit(complete, client, [5] * 40)
            picker.wait_until(lambda server: server.admission.num_open == 1)
            shed = complete(client, [5] * 40)
            assert (shed.status_code, shed.headers["retry-after"]) == (429, "1")
        assert asked.result().status_code == 200
        picker.wait_until(lambda server: server.admission.num_open == 0)
        assert not any(picker.ask(open_at).values())
        assert complete(client, [5] * 40, user="x" * 9000).status_code == 413
    engine.check_nothing_is_left()


def test_a_client_that_goes_away_ends_its_request(envoy, picker, engines):
    body = {"model": MODEL, "prompt": [5] * 40, "max_tokens": 400, "ignore_eos": True, "stream": True}
    with envoy.client() as client, client.stream("POST", "/v1/completions", json=body) as answer:
        next(answer.iter_raw())
    picker.wait_until(lambda server: server.admission.num_open == 0)
    assert not any(picker.ask(open_at).values())
    for engine in engines:
        engine.check_nothing_is_left()


def test_each_tenants_cache_is_known_to_be_its_own(folder, running, tmp_path):
    file = tmp_path / "tenants.yaml"
    file.touch(mode=0o600)
    file.write_text("- {key: sk-a, tenant: a}\n- {key: sk-b, tenant: b}\n")
    engine = running(RoutedEngine(folder, api_key="inside", tenants=read_tenants(file)))
    picker = running(RunningPicker([engine.url], tenants=file, engine_api_key="inside"))
    picker.wait_until_known(1)
    envoy = running(RunningEnvoy(picker, [engine], tmp_path))

    def resumed(key, prompt=LONG):
        answer = complete(client, prompt, headers={"authorization": f"Bearer {key}"})
        picker.wait_until_told([engine])
        return last_choice(picker).resumed_tokens, resumed_tokens(answer)

    with envoy.client() as client:
        assert resumed("sk-a") == (0, 0)
        expected, really = resumed("sk-a", [*LONG, *LONG])
        assert expected == really > 0
        assert resumed("sk-b") == (0, 0)
        assert complete(client, LONG, headers={"authorization": "Bearer nobody"}).status_code == 401
        assert complete(client, LONG).status_code == 401


def test_one_tenant_leaves_room_for_others(folder, running, tmp_path):
    file = tmp_path / "tenants.yaml"
    file.touch(mode=0o600)
    file.write_text("- {key: sk-a, tenant: a}\n- {key: sk-b, tenant: b}\n")
    engine = running(RoutedEngine(folder, api_key="inside", tenants=read_tenants(file)))
    picker = running(RunningPicker([engine.url], tenants=file, engine_api_key="inside", most_open=4))
    picker.wait_until_known(1)
    envoy = running(RunningEnvoy(picker, [engine], tmp_path))

    def ask(key):
        return complete(client, [5] * 40, headers={"authorization": f"Bearer {key}"})

    with envoy.client() as client, ThreadPoolExecutor(3) as others:
        with engine.held_engine():
            asked = []
            for key in ("sk-a", "sk-a", "sk-b"):
                asked.append(others.submit(ask, key))
                picker.wait_until(lambda server: server.admission.num_open == len(asked))
            assert ask("sk-a").status_code == 429
        assert [one.result().status_code for one in asked] == [200] * 3
        assert ask("sk-a").status_code == 200


def test_its_status_is_told_over_http(folder, running, tmp_path):
    engine = running(RoutedEngine(folder))
    picker = running(RunningPicker([engine.url], status_port=0, operator_api_key="mine"))
    picker.wait_until_known(1)
    envoy = running(RunningEnvoy(picker, [engine], tmp_path))
    with envoy.client() as client:
        complete(client, LONG)
        picker.wait_until_told([engine])
        complete(client, [*LONG, *LONG], stream=True)
    headers = {"authorization": "Bearer mine"}
    with httpx.Client(base_url=picker.server.status_url, headers=headers, timeout=300) as client:
        seen, metrics = client.get("/fleet").json(), client.get("/metrics").text
        assert (seen["requests"], seen["prompt_tokens"]) == (2, 3 * len(LONG))
        assert [decision["path"] for decision in seen["decisions"]] == ["/v1/completions"] * 2
        assert seen["expected_tokens"] == seen["decisions"][1]["choice"]["resumed_tokens"] > 0
        assert f'octavo_router_engine_up{{engine="{engine.name}"}} 1.0' in metrics
        assert "octavo_router_time_to_first_token_seconds_count 1.0" in metrics
        assert client.get("/").headers["content-type"].startswith("text/html")
        assert client.post(f"/fleet/{engine.name}/drain").json()["is_draining"]
        assert client.get("/health").status_code == 503
        assert client.get("/fleet", headers={"authorization": ""}).status_code == 401


def test_engines_are_found_by_a_name(folder, running, tmp_path):
    engine = running(RoutedEngine(folder))
    picker = running(RunningPicker([f"dns://localhost:{urlsplit(engine.url).port}"]))
    picker.wait_until_known(1)
    assert picker.ask(lambda server: server.fleet.ready) == [engine.name]
    envoy = running(RunningEnvoy(picker, [engine], tmp_path))
    with envoy.client() as client:
        assert complete(client, [5] * 40).status_code == 200


def test_health_is_told_as_gateways_ask_it(picker, engines):
    ready = "envoy.service.ext_proc.v3.ExternalProcessor"
    with grpc.insecure_channel(picker.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)

        def ask(service):
            return health_pb2.HealthCheckResponse.ServingStatus.Name(
                health.Check(health_pb2.HealthCheckRequest(service=service)).status
            )

        assert {ask(service) for service in ("", "liveness", "readiness", ready)} == {"SERVING"}
        with pytest.raises(grpc.RpcError) as refused:
            ask("nothing")
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        watching = health.Watch(health_pb2.HealthCheckRequest(service=ready))
        assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
        for engine in engines:
            engine.close()
        assert next(watching).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watching.cancel()
        assert [ask("liveness"), ask(ready)] == ["SERVING", "NOT_SERVING"]
