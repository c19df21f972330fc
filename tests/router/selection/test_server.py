"""The same over HTTP, on a real socket, with a key."""

import threading
from urllib.parse import quote

import httpx
import pytest

from octavo.http import open_socket, url_of
from octavo.router import SELECTION_METRICS, SelectionConfig, SelectionServer
from rigs.publishing_engine import HASHES, TOKENS

ASKED = {"model_name": "m", "token_ids": [*TOKENS, *[5] * 8]}


class RunningSelection:
    """A selection service on a free port."""

    def __init__(self):
        config = SelectionConfig(port=0, api_key="secret", shutdown_timeout_s=0)
        listener = open_socket(config)
        self.url = url_of(listener)
        self.server = SelectionServer(config)
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]})
        self._thread.start()

    def client(self, key="secret"):
        return httpx.Client(base_url=self.url, timeout=300, headers={"authorization": f"Bearer {key}"})

    def close(self):
        self.server.should_exit = True
        self._thread.join()


@pytest.fixture
def client(running):
    with running(RunningSelection()).client() as client:
        yield client


def register(client, engine, instance_id, **others):
    body = {
        "instance_id": instance_id,
        "endpoint": engine.events,
        "replay_endpoint": engine.replay,
        "model_name": "m",
        "block_size": 16,
        **others,
    }
    return client.post("/register", json=body)


def wait_until_told(client):
    while not all(rank["num_blocks"] for worker in client.get("/workers").json() for rank in worker["ranks"]):
        pass


def test_a_fleet_is_registered_asked_and_left(client, long, short):
    assert client.get("/health").status_code == 200
    assert client.get("/ready").status_code == 503
    assert register(client, long, 1).json() == {"status": "ok", "instance_id": 1}
    assert register(client, long, 1).status_code == 409
    assert client.post("/workers", json=short.worker(2)).status_code == 200
    wait_until_told(client)
    assert client.get("/ready").status_code == 200
    whole = client.post("/query", json=ASKED).json()
    assert whole["scores"] == {"1": {"0": 16}, "2": {"0": 512}}
    assert client.post("/query_by_hash", json={"model_name": "m", "block_hashes": HASHES}).json() == whole
    assert {row["worker_id"] for row in client.post("/overlap_scores", json=ASKED).json()["workers"]} == {1, 2}
    assert len(client.post("/potential_loads", json=ASKED).json()) == 2
    dump = client.get("/dump").json()["m:default"]
    assert [event["type"] for event in dump[1]["events"]] == ["BlockStored"] * 3

    assert client.post("/select", json=ASKED).json()["worker_id"] == 2
    sent = client.post("/select_and_reserve", json={**ASKED, "selection_id": "r1"}).json()
    assert (sent["worker_id"], sent["selection_id"]) == (2, "r1")
    assert client.post("/reservations/r1/prefill_complete").status_code == 200
    assert client.post("/reservations/r1/output_block").status_code == 200
    assert sum(load["active_requests"] for load in client.get("/loads").json()) == 1
    assert client.post("/reservations", json={**ASKED, "selection_id": "r2", "worker_id": 1}).status_code == 200
    assert [client.delete(f"/reservations/{one}").status_code for one in ("r1", "r2", "r2")] == [200, 200, 404]

    assert client.post("/unregister", json={"instance_id": 1, "model_name": "m"}).status_code == 200
    assert client.delete("/workers/2").status_code == 200
    assert client.get("/workers").json() == []


@pytest.mark.parametrize("selection_id", ["team/r1", "r1/", "r1/prefill_complete", "/"])
def test_a_reservation_is_reached_by_any_id(client, selection_id):
    client.post("/workers", json={"worker_id": 1, "model_name": "m"})
    assert client.post("/select_and_reserve", json={**ASKED, "selection_id": selection_id}).status_code == 200
    path = f"/reservations/{quote(selection_id, safe='')}"
    answers = [client.post(f"{path}/{news}") for news in ("prefill_complete", "output_block")]
    assert [answer.status_code for answer in [*answers, client.delete(path)]] == [200, 200, 200]
    assert client.get("/loads").json()[0]["active_requests"] == 0


def test_what_cannot_be_read_is_refused(client):
    for body, complaint in (
        (b"[]", "no JSON object"),
        (b"{", "is no JSON"),
        (b'{"token_ids": [' + b"9" * 5000 + b"]}", "has a number of too many digits"),
        (b"\xff", "is no JSON"),
        (rb'{"model_name": "\ud83d"}', "the body holds half of a surrogate pair"),
        (b'{"model_name": "m", "token_ids": [1]}', "no worker serves model 'm'"),
    ):
        answer = client.post("/query", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 404)
        assert complaint in answer.json()["error"]["message"]
    long = client.post("/query", json={"model_name": "m" * 100_000, "token_ids": [1]}).json()
    assert len(long["error"]["message"]) < 200, "it quotes what was sent"
    salted = {"instance_id": 1, "endpoint": "tcp://127.0.0.1:9", "additional_salt": "s"}
    assert client.post("/register", json=salted).json()["error"]["param"] == "additional_salt"


def test_nobody_asks_without_the_key(running):
    server = running(RunningSelection())
    with server.client("wrong") as client:
        assert client.get("/health").status_code == 200
        assert client.get("/workers").status_code == 401
        assert client.post("/query", json=ASKED).status_code == 401


def test_metrics(client, short):
    client.post("/workers", json=short.worker(2))
    wait_until_told(client)
    client.post("/select_and_reserve", json=ASKED)
    text = client.get("/metrics").text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values["octavo_select_selections_total"] == values["octavo_select_reservations"] == "1.0"
    assert (values["octavo_select_workers"], values["octavo_select_index_blocks"]) == ("1.0", "34.0")
    assert values['octavo_http_answers_total{path="/workers",status="200"}'] == "1.0"
    told = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert told == {metric.name for metric in SELECTION_METRICS}
