"""A real Ray Serve with three engines: OpenAI's API, and requests that go where they can be resumed."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from random import Random
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("ray", reason="needs octavo[ray]: make test-fleet")

import ray
from openai import OpenAI
from ray import serve

from octavo.engine import save_tiny_model
from octavo.errors import InputError
from octavo.http import LoadBook
from octavo.offload import LoadSpeed
from octavo.ray import EngineReplica
from octavo.ray.application import app
from octavo.ray.arguments import Arguments
from octavo.ray.handed import HandedRequest, Head
from octavo.ray.ingress import MOST_OPEN, Ingress
from octavo.ray.request_router import told_by
from rigs.ports import free_port
from rigs.running_ray import PATIENCE_S, running_ray, wait_until
from rigs.running_server import RunningServer

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.timeout(600),  # Ray starts eight processes
    pytest.mark.filterwarnings("ignore"),
]
NUM_ENGINES = 3
NUM_PROMPTS = 10
ENDLESS = {"max_tokens": 800, "ignore_eos": True, "temperature": 0}
"""Takes seconds; a test needs some milliseconds for what is to happen before it ends."""
BOUNDS = {"device_memory": "16MiB", "max_model_len": "2048"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray") / "qwen3_next"
    save_tiny_model("qwen3_next", folder)
    return folder


@pytest.fixture(scope="module")
def url(folder, tmp_path_factory):
    port = free_port()
    disk = tmp_path_factory.mktemp("disk")
    told = {"model": str(folder), "replicas": str(NUM_ENGINES), "memory": "4MiB", "disk": str(disk), **BOUNDS}
    with running_ray(num_cpus=NUM_ENGINES, http_options={"host": "127.0.0.1", "port": port}):
        serve.run(app(told), name="octavo")
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def client(url):
    """It keeps no connection: Ray's proxy closes one that was idle for seconds, perhaps just as a request goes out."""
    limits = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(base_url=url, timeout=5 * PATIENCE_S, limits=limits) as client:
        yield client


@pytest.fixture(scope="module")
def alone(folder):
    """The same model in one server, without Ray."""
    running = RunningServer(folder, max_model_len=2048, device_memory_bytes=16 << 20)
    with running.client() as client:
        yield client
    running.close()


def prompt_of(number):
    return Random(number).choices(range(2, 300), k=200)


def ask(client, tokens, **others):
    answer = client.post("/v1/completions", json={"prompt": tokens, "max_tokens": 8, "temperature": 0, **others})
    assert answer.status_code == 200, answer.text
    return answer


def engine_of(answer):
    return answer.headers["x-octavo-engine"]


def resumed_tokens(answer):
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def text_of(answer):
    return answer.json()["choices"][0]["text"]


def actor_of(engine):
    names = [one["name"] for one in ray.util.list_named_actors(all_namespaces=True) if one["name"].endswith(engine)]
    return ray.get_actor(names[0], namespace="serve")


def test_requests_go_where_they_can_be_resumed_and_the_answers_are_the_engines(client, alone):
    numbers = iter(range(10_000))

    def goes_where_it_was():
        """By chance, once in 3 to the power of 10 times."""
        prompts = [prompt_of(next(numbers)) for _ in range(NUM_PROMPTS)]
        first = [ask(client, prompt) for prompt in prompts]
        second = [ask(client, prompt) for prompt in prompts]
        expected = [text_of(ask(alone, prompt)) for prompt in prompts]
        assert [text_of(answer) for answer in first] == [text_of(answer) for answer in second] == expected
        resumed = [resumed_tokens(answer) for answer in second]
        return min(resumed) > 0 and [*map(engine_of, first)] == [*map(engine_of, second)]

    wait_until(goes_where_it_was)  # a router hears within a second or two where a new replica's events are


def test_the_official_client_gets_the_answer_piece_by_piece(url, folder, alone):
    with OpenAI(base_url=f"{url}/v1", api_key="none", timeout=PATIENCE_S) as client:
        (model,) = client.models.list()
        assert model.id == folder.name == client.models.retrieve(folder.name).id
        question = {"messages": [{"role": "user", "content": "What is a hybrid?"}], "max_tokens": 12, "temperature": 0}
        pieces = [
            piece.choices[0].delta.content
            for piece in client.chat.completions.create(model=model.id, stream=True, **question)
        ]
        long = client.chat.completions.create(model=model.id, stream=True, **question | {"max_tokens": 400})
        num_pieces = sum(1 for _ in long)
    whole = alone.post("/v1/chat/completions", json=question).json()["choices"][0]["message"]["content"]
    assert "".join(filter(None, pieces)) == whole
    assert num_pieces > 2, "tokens that a busy machine sends late come together, and never so many"


def test_what_is_wrong_with_a_request_is_said_by_an_engine(client):
    refused = client.post("/v1/completions", json={"model": "other", "prompt": "hello"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
    refused = client.post("/v1/chat/completions", content="{", headers={"content-type": "application/json"})
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
    assert client.get("/metrics").status_code == 404
    assert client.get("/health").status_code == 200


def test_who_goes_away_ends_the_request(client):
    with client.stream("POST", "/v1/completions", json={"prompt": prompt_of(0), "stream": True, **ENDLESS}) as answer:
        next(answer.iter_lines())
    engine, handle = engine_of(answer), serve.get_deployment_handle("Engine", "octavo").options(stream=True).answer
    question = HandedRequest(method="GET", path="/metrics", headers=[(b"host", b"127.0.0.1")])

    def is_aborted():
        head, *pieces = handle.remote(question)
        return head.replica == engine and b'reason="abort"} 1.0' in b"".join(pieces)

    assert isinstance(next(iter(handle.remote(question))), Head)
    wait_until(is_aborted)


def test_an_engine_that_dies_is_left(client, alone):
    prompt = prompt_of(10_001)
    engine = engine_of(ask(client, prompt))
    actor = actor_of(engine)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(ask, client, prompt, **ENDLESS)
        wait_until(lambda: ray.get(actor.get_num_ongoing_requests.remote()) > 0 or waiting.done())
        ray.kill(actor)
        answer = waiting.result()
    assert engine_of(answer) != engine
    assert text_of(answer) == text_of(ask(alone, prompt, **ENDLESS))
    assert engine not in {engine_of(ask(client, prompt_of(number))) for number in range(10_002, 10_012)}


def test_an_engine_that_dies_within_a_stream_ends_it_with_an_error(client):
    with client.stream("POST", "/v1/completions", json={"prompt": prompt_of(1), "stream": True, **ENDLESS}) as answer:
        lines = answer.iter_lines()
        next(lines)
        ray.kill(actor_of(engine_of(answer)))
        rest = [line for line in lines if line]
    assert '"code":"engine_gone"' in rest[-2]
    assert rest[-1] == "data: [DONE]"


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"max_num_seq": "3", "tiny": "gemma3"}, "unknown argument 'max_num_seq'; did you mean 'max_num_seqs'?"),
        ({"replicas": "none", "tiny": "gemma3"}, "--replicas"),
        ({}, "name a model"),
        ({"model": "/no/model"}, "/no/model is not a model's folder"),
        ({"tiny": "gpt7"}, "--tiny 'gpt7' is not one of"),
    ],
)
def test_bad_arguments_are_named_before_anything_starts(told, sentence):
    with pytest.raises(InputError, match=sentence):
        app(told)


def test_a_replica_reports_speeds_that_change_seldom():
    class Service:
        load = LoadBook(max_model_len=1)

        async def look(self):
            self.load.load_speeds = {"disk": LoadSpeed(0.01234, 0.0000567)}

    replica = SimpleNamespace(_service=Service(), _told={"stores": {"redis": "pool"}})
    told = asyncio.run(EngineReplica.record_routing_stats(replica))
    assert told == {"octavo": {"stores": {"redis": "pool"}, "load_speeds": {"disk": [0.012, 0.000057]}}}


def test_tenants_share_the_places_of_the_ingress_and_of_each_engine(folder, monkeypatch, tmp_path):
    file = tmp_path / "tenants.yaml"
    file.touch(mode=0o600)
    file.write_text("- {key: sk-a, tenant: a}\n")
    arguments = Arguments.of(
        {"model": str(folder), "tenants": str(file), "max_num_seqs": "2", "max_waiting": "8", **BOUNDS}
    )
    ids = SimpleNamespace(rank=SimpleNamespace(rank=0), replica_id=SimpleNamespace(unique_id="one"))
    monkeypatch.setattr(serve, "get_replica_context", lambda: ids)
    replica = EngineReplica(arguments)
    try:
        assert replica._service.admission.most_prompts == 5
    finally:
        asyncio.run(replica.__del__())
    ingress = SimpleNamespace(_config=arguments.server, _hand_on=None)
    routes = Ingress.__serve_build_asgi_app__(ingress).routes
    assert next(r for r in routes if r.path == "/v1/completions").endpoint._admission.most_prompts == MOST_OPEN // 2


def replica(endpoint):
    return replica_that_tells({"0": endpoint})


def replica_that_tells(endpoints):
    told = {"octavo": {"kv_events_endpoints": endpoints}}
    return SimpleNamespace(node_id="there", routing_stats=told, replica_id=SimpleNamespace(unique_id="one"))


@pytest.mark.parametrize("endpoints", [None, ["tcp://10.0.0.7:5557"], "tcp://10.0.0.7:5557", {"0": None}, {"0": 5557}])
def test_a_report_of_another_machine_that_is_none_is_refused_and_not_looked_into(endpoints):
    """Ray's router took no replica any more, and calls waited for ever."""
    assert told_by(replica_that_tells(endpoints), "here") == {"kv_events_endpoints": endpoints}


def test_events_of_another_machine_must_be_reachable():
    assert told_by(replica("tcp://127.0.0.1:5557"), "here") == {}
    assert told_by(replica("tcp://127.0.0.1:5557"), "there")
    assert told_by(replica("tcp://10.0.0.7:5557"), "here")
