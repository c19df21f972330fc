"""Engines that are killed or paused under load: no request is lost that had not begun to answer."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from octavo.engine import save_tiny_model
from rigs.octavo_process import OctavoProcess
from rigs.running_router import RunningRouter

NUM_CLIENTS = 10
BODY = {"model": "llama", "max_tokens": 60, "temperature": 0, "ignore_eos": True, "stream": True}


def start_engine(folder):
    flags = ["--port", "0", "--device-memory", "16MiB", "--max-model-len", "512", "--served-model-name", "llama"]
    flags += ["--kv-events", "tcp://127.0.0.1:0", "--kv-events-replay", "tcp://127.0.0.1:0"]
    return OctavoProcess("serve", *flags, str(folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults") / "llama"
    save_tiny_model("llama", folder)
    return folder


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_an_engine_that_is_killed_or_paused_under_load(folder, running, fault):
    engines = [running(start_engine(folder)) for _ in range(2)]
    router = running(RunningRouter([engine.url for engine in engines]))
    router.wait_until_known(2)
    whole = threading.Semaphore(0)

    def ask(client, number):
        """The pieces of an answer, and whether it ended well."""
        pieces = []
        with client.stream("POST", "/v1/completions", json={**BODY, "prompt": [5 + number] * 30}) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    pieces.append(line)
                    whole.release()
        return answer.headers["x-octavo-engine"], pieces

    with httpx.Client(base_url=router.url, timeout=300) as client, ThreadPoolExecutor(NUM_CLIENTS) as clients:
        asked = [clients.submit(ask, client, number) for number in range(NUM_CLIENTS)]
        for _ in range(2 * NUM_CLIENTS):
            whole.acquire()
        engines[0].signal(fault)
        answers = [one.result() for one in asked]
    broken = [pieces for _, pieces in answers if "error" in pieces[-2]]
    for engine, pieces in answers:
        assert pieces[-1] == "data: [DONE]"
        assert pieces not in broken or engine == engines[0].name
        assert (pieces in broken) != ('"finish_reason":"length"' in pieces[-2])
    assert len(broken) < NUM_CLIENTS
    reachable = lambda seen: {engine["name"] for engine in seen["engines"] if engine["is_reachable"]}  # noqa: E731
    seen = router.wait_until(lambda seen: reachable(seen) == {engines[1].name})
    assert all(engine["open_requests"] == 0 for engine in seen["engines"])
