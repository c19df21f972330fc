"""What can be looked at: metrics and the page's document."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from octavo.events import GroupView, PublishedPlan
from octavo.server import view_tiers
from octavo.server.page_state import draw_sheets
from octavo.tiers import TierState, TierStatus
from rigs.running_server import ENDLESS, LONG_CONTEXT, serving
from rigs.tier_report import REPORT


@pytest.fixture(scope="module")
def tiered(model_folder):
    with serving(model_folder, read_offload=lambda: REPORT) as running:
        yield running


def complete(client, **body):
    response = client.post("/v1/completions", json={"prompt": "b" * 60, "max_tokens": 5, **body})
    assert response.status_code == 200


def samples(client):
    """By name and labels, without the model's, which all have."""
    return {
        (sample.name, tuple(sorted(sample.labels.items() - {("model", "tiny")}))): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    }


def test_metrics_of_a_request(server, client):
    before = samples(client)
    complete(client)
    with ThreadPoolExecutor(1) as others:
        with server.held_after(1):
            asked = others.submit(complete, client, stream=True)
            while not any(request.num_output_tokens for request in list(server.server.service.live)):
                client.get("/health")  # until the first token is noted, so that the next ones come after it
        asked.result()
    complete(client, temperature=7, top_p=0.5, n=2)
    client.post("/v1/completions", json={})
    after = samples(client)

    def grown(name, **labels):
        key = (name, tuple(sorted(labels.items())))
        return after[key] - before.get(key, 0)

    assert grown("octavo_time_to_first_token_seconds_count") == 3
    assert grown("octavo_request_seconds_count") == 3
    assert 0 < grown("octavo_inter_token_latency_seconds_count") <= 4 * 4  # tokens that come with the first have none
    assert grown("octavo_requests_total") == 3
    assert grown("octavo_prompt_tokens_total") == 180
    assert grown("octavo_output_tokens_total") == 20
    assert grown("octavo_tokens_resumed_total", medium="device") == 2 * 48
    assert grown("octavo_http_answers_total", path="/v1/completions", status="200") == 3
    assert grown("octavo_http_answers_total", path="/v1/completions", status="400") == 1
    assert after["octavo_engine_up", ()] == 1
    assert after["octavo_requests_running", ()] == after["octavo_requests_waiting", ()] == 0


def test_metrics_of_the_pool(client, server):
    complete(client)
    told = samples(client)
    snapshot = server.ask(lambda engine: engine.snapshot())
    sheets = [told["octavo_pool_sheets", (("state", state),)] for state in ("free", "leased")]
    assert sum(sheets) == snapshot.num_sheets
    for index, pages in enumerate(snapshot.classes):
        for state in ("held", "cached", "free"):
            value = told["octavo_pool_pages", (("page_class", str(index)), ("state", state))]
            assert value == getattr(pages, f"{state}_pages")
    kinds = {key[1][1][1] for key in told if key[0] == "octavo_pool_blocks"}
    assert kinds == {group.kind for group in snapshot.groups}


def test_metrics_of_tiers(tiered):
    with tiered.client() as client:
        told = samples(client)
    memory, disk = (("medium", "memory"),), (("medium", "disk"),)
    assert (told["octavo_tier_bytes", memory], told["octavo_tier_budget_bytes", memory]) == (384, 640)
    assert (told["octavo_tier_bytes", disk], told["octavo_tier_chunks", disk]) == (30, 3)
    assert (told["octavo_tier_up", memory], told["octavo_tier_up", disk]) == (1, 0)
    assert told["octavo_tier_events_total", (("event", "store_failed"), *disk)] == 7
    assert told["octavo_blocks_loaded_total", (("group", "0"), ("medium", "disk"))] == 2
    assert told["octavo_device_events_total", (("event", "load_failed"),)] == 1


def test_the_document_of_the_page(tiered):
    with tiered.client() as client:
        complete(client)
        response = client.get("/state")
    assert response.headers["cache-control"] == "no-store"
    state = response.json()
    engine = state["engine"]
    assert (state["model"], state["num_requests"], state["requests"]) == ("tiny", 0, [])
    assert [tier["medium"] for tier in engine["tiers"]] == ["memory", "disk"]
    assert engine["tiers"][1]["reason"] == "no space left"
    drawn = [sheet for sheet in engine["sheets"] if sheet is not None]
    for index, pages in enumerate(engine["classes"]):
        letters = "".join(sheet[1] for sheet in drawn if sheet[0] == index)
        assert letters.count("c") * engine["sheets_apart"] >= pages["cached_pages"] > 0
        assert letters.count("h") == pages["held_pages"]


def test_open_requests_are_shown(model_folder):
    with (
        serving(model_folder, max_model_len=LONG_CONTEXT) as server,
        server.client() as client,
        client.stream("POST", "/v1/completions", json={"prompt": "abc", **ENDLESS}) as response,
    ):
        lines = response.iter_lines()  # held: an iterator that is dropped closes the connection
        next(lines)
        (request,) = client.get("/state").json()["requests"]
    assert request["prompt_tokens"] == 3
    assert request["output_tokens"] >= 1
    assert request["id"].startswith("cmpl-")


def test_a_large_pool_is_drawn_in_part(model_folder):
    with serving(model_folder, device_memory_bytes=256 << 20) as server:
        sheets, apart = server.ask(lambda engine: draw_sheets(engine.manager))
        num_sheets = server.ask(lambda engine: engine.manager.config.num_sheets)
    assert apart > 1
    assert len(sheets) == -(-num_sheets // apart) <= 512


def test_the_page_is_the_same_in_every_locale(client):
    script = "import sys; from octavo.http import read_page; sys.stdout.buffer.write(read_page('octavo.server').body)"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True)
    assert ran.stdout == client.get("/").content


def test_the_page_is_self_contained(client):
    response = client.get("/")
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "<!-- page" not in response.text
    outside = [word for word in response.text.split() if "//" in word and "http" in word]
    assert all("www.w3.org" in word for word in outside)


def test_the_plan_is_what_routers_read(server, client):
    plan = msgspec.json.decode(client.get("/plan").content, type=PublishedPlan)
    groups = server.engine.engine.manager.config.groups
    assert [group.kind for group in plan.groups] == [group.spec.kind for group in groups]
    assert plan.clears_all_media
    assert GroupView.of_plan(plan).longest_resume([1], 17).num_tokens == 0


def test_a_store_that_engines_share_has_no_budget_here():
    store = TierStatus(
        state=TierState.OK, reason="", bytes_used=0, bytes_budget=0, num_chunks=1200, counters={"stored": 1200}
    )
    report = REPORT._replace(status=replace(REPORT.status, tiers=(("objects", store),)))
    assert [tier.usage for tier in view_tiers(report)] == ["384 B of 640 B", "1,200 chunks known"]
