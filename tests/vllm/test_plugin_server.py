"""vLLM's API server with the plug-in, in processes of its own: a client, the metrics and the events."""

import json
import random
import re
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
import zmq
from api_server import serving
from plugin_process import leftovers, make_model, transfer_config

from octavo.why import Cause, MissReport, find_report

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

_EVENT_S = 60


def post(url: str) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=300) as answer:
        assert answer.status == 200


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=300) as answer:
        return answer.read().decode()


def metric(text: str, name: str, *labels: str) -> float:
    lines = [
        line for line in text.splitlines() if line.startswith(name + "{") and all(label in line for label in labels)
    ]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def wait_for_metric(url: str, name: str, *labels: str, at_least: int = 1) -> None:
    """vLLM tells the process that is asked for metrics after each step, and says not when it has."""
    deadline = time.monotonic() + _EVENT_S
    while (value := metric(read(f"{url}/metrics"), name, *labels)) < at_least:
        assert time.monotonic() < deadline, (name, labels, value)


def ask(client: openai.OpenAI, tokens: list[int], **body: Any) -> str:
    answer = client.completions.create(
        model="tiny", prompt=tokens, max_tokens=12, temperature=0, extra_body={"ignore_eos": True} | body
    )
    return answer.choices[0].text


def hinted(**hints: Any) -> dict[str, Any]:
    return {"kv_transfer_params": {"octavo": hints}}


def wait_for_report(client: openai.OpenAI, log: Path, request_id: str) -> MissReport:
    """vLLM tells that a request has ended in a step after its last store."""
    deadline = time.monotonic() + _EVENT_S
    while (report := find_report(log.read_text().splitlines(), request_id)) is None:
        assert time.monotonic() < deadline, request_id
        ask(client, [5, 6, 7])
    return report


def loaded_tokens(url: str) -> int:
    return int(metric(read(f"{url}/metrics"), "vllm:external_prefix_cache_hits_total"))


def make_prompt() -> list[int]:
    source = random.Random(1)
    return [source.randrange(4, 512) for _ in range(520)]


def test_server(tmp_path: Path) -> None:
    model = make_model("gemma3", tmp_path / "model")
    sizes = {"memory": "8MiB", "disk": str(tmp_path / "disk"), "disk_size": "64MiB"}
    transfer = transfer_config(**sizes, digests=str(tmp_path), why=True)
    before = leftovers()
    events = f"ipc://{tmp_path}/events"
    events_config = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": events}
    context = zmq.Context.instance()
    with (
        context.socket(zmq.SUB) as subscriber,
        serving(
            model,
            tmp_path,
            "--kv-transfer-config",
            json.dumps(transfer),
            "--kv-events-config",
            json.dumps(events_config),
            imports=True,
        ) as server,
        server.client() as client,
    ):
        (line,) = (line for line in (tmp_path / "server.log").read_text().splitlines() if "Octavo is on: " in line)
        assert re.search(r"memory of \d[\d.]* MiB with 0 chunks; disk of 64 MiB with 0 chunks$", line)
        url = server.url
        subscriber.setsockopt(zmq.RCVTIMEO, _EVENT_S * 1000)
        subscriber.subscribe(b"")
        subscriber.connect(events)
        prompt = make_prompt()
        ask(client, prompt)
        right = ask(client, prompt)
        assert loaded_tokens(url) == 0
        ask(client, [5, 6, 7])  # vLLM stores in the next step
        post(f"{url}/reset_prefix_cache")
        assert ask(client, prompt) == right
        assert loaded_tokens(url) == 512
        longer = client.completions.create(model="tiny", prompt=[*prompt[:260], *range(4, 264)], max_tokens=2)
        report = wait_for_report(client, tmp_path / "server.log", longer.id)
        assert {missed.cause for missed in report.missed} == {Cause.NEVER_KEPT}

        on_device: set[tuple[int, int]] = set()
        stored: dict[str, set[tuple[int, int]]] = {"CPU": set(), "STORAGE": set()}
        while not all(stored.values()):
            for event in msgspec.msgpack.decode(subscriber.recv_multipart()[2])[1]:
                if event["type"] == "BlockStored":
                    known = stored.get(event["medium"], on_device)
                    known |= {(event.get("group_idx"), h) for h in event["block_hashes"]}
        assert {group for group, _ in stored["CPU"]} == set(range(6))
        assert stored["CPU"] <= on_device
        assert stored["STORAGE"] <= stored["CPU"]

        wait_for_metric(url, "octavo_tier_events_total", 'medium="memory"', 'event="loaded"')
        wait_for_metric(url, "octavo_tier_events_total", 'medium="memory"', 'event="written_through"')
        wait_for_metric(url, "octavo_tier_bytes", 'medium="memory"')
        wait_for_metric(url, "octavo_tier_up", 'medium="disk"')

        assert ask(client, prompt, **hinted(retain="1h")) == right
        wait_for_metric(url, "octavo_hints_total", 'kind="retain"', 'outcome="taken"')
        assert ask(client, prompt, **hinted(retain="for ever")) == right
        (line,) = (line for line in (tmp_path / "server.log").read_text().splitlines() if "ignores the hints" in line)
        assert "retain must be a time up to 168h such as 300s, 10m or 2h, not 'for ever'" in line
    assert leftovers() <= before


def test_what_two_ranks_stored_outlives_the_death_of_one(tmp_path: Path) -> None:
    model = make_model("llama", tmp_path / "model")
    transfer = transfer_config(memory="8MiB", disk=str(tmp_path / "disk"), disk_size="64MiB", digests=str(tmp_path))
    before, prompt = leftovers(), make_prompt()
    two_ranks = (model, tmp_path, "--kv-transfer-config", json.dumps(transfer), "--tensor-parallel-size", "2")
    with serving(*two_ranks) as server, server.client() as client:
        ask(client, prompt)
        right = ask(client, prompt)
        ask(client, [5, 6, 7])
        written = ("octavo_tier_events_total", 'medium="memory"', 'event="written_through"')
        wait_for_metric(server.url, *written, at_least=512 // 128)
        (engine,) = server.process.children()
        _, rank = engine.children()
        rank.kill()
        server.process.wait(300)
    assert leftovers() <= before
    with serving(*two_ranks) as server, server.client() as client:
        assert ask(client, prompt) == right
        assert loaded_tokens(server.url) == 512
