"""`octavo bench serve` against a real server: its numbers are those of the server, and trouble is counted."""

import json

import pytest

pytest.importorskip("torch", reason="needs the engine: pip install 'octavo[engine]'")

from octavo.cli.commands.bench import run as bench_runner
from octavo.cli.commands.bench.view import percentile
from octavo.cli.commands.bench.workload import Tokens, replay_trace
from octavo.engine import save_tiny_model
from octavo.errors import InputError
from octavo.sim import read_trace
from rigs.running_server import serving

TRACE = [
    {"timestamp": 0, "input_length": 1000, "output_length": 64, "hash_ids": [1, 2]},
    {"timestamp": 10, "input_length": 1400, "output_length": 32, "hash_ids": [1, 2, 3]},
]
TOKENS = Tokens(vocab_size=256, seed=0)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_tiny_model("qwen3", folder)
    with serving(folder, max_waiting=8) as running:
        yield running
        running.check_nothing_is_left()


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in TRACE))
    return path


def bench(octavo, server, *flags):
    ran = octavo("bench", "serve", server.url, "--json", *flags)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_conversations(octavo, server):
    server.ask(lambda engine: engine.reset_prefix_cache())
    shape = ["--shared-tokens", 32, "--turn-tokens", 16, "--output-tokens", 4, "--turns", 3]
    told = bench(octavo, server, "--conversations", 5, "--concurrency", 3, *shape)
    assert told["requests"] == {"succeeded": 15, "failed": 0}
    assert told["tokens"]["output"] == 60
    assert told["tokens"]["prompt"] == 5 * (48 + 68 + 88)
    assert told["tokens"]["cached_by_medium"] == {"device": told["tokens"]["cached"]}
    # Each turn resumes at least the former prompt's whole blocks.
    assert told["tokens"]["cached"] >= 5 * (48 + 64)
    assert 0.5 < told["hit_rate"] < 1
    for name in ("time_to_first_token_s", "inter_token_latency_s", "request_s"):
        assert 0 < told[name]["p50"] <= told[name]["p90"] <= told[name]["p99"]


@pytest.mark.parametrize(("proxies", "is_used"), [({}, True), ({"http_proxy": "http://127.0.0.1:9"}, False)])
def test_connections_cost_the_same_however_many_are_open(monkeypatch, proxies, is_used):
    """httpx's pool looks at all of them for each idle one. At 256 the server seemed to take 4 times as long."""
    opened = []
    monkeypatch.setattr(bench_runner, "EngineConnections", lambda: opened.append(True))
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, url in proxies.items():
        monkeypatch.setenv(name, url)
    bench_runner.open_bench_client(bench_runner.BenchTarget(base_url="http://s", headers={}, model="m", concurrency=1))
    assert opened == [True] * is_used


def test_a_trace(octavo, server, trace):
    server.ask(lambda engine: engine.reset_prefix_cache())
    told = bench(octavo, server, "--trace", trace, "--block-tokens", 64, "--concurrency", 1, "--speed", 10)
    assert told["requests"]["succeeded"] == 2
    assert told["tokens"]["prompt"] == 125 + 175
    assert told["tokens"]["output"] == 8 + 4
    assert told["tokens"]["cached"] == 112  # the first block, and what is whole of the second
    assert bench(octavo, server, "--trace", trace, "--block-tokens", 64, "--limit", 1)["tokens"]["prompt"] == 125


@pytest.mark.parametrize("flags", [["--limit", 5], ["--speed", 2.0], ["--trace", "it.jsonl", "--turns", 4]])
def test_a_flag_of_another_workload_is_refused(octavo, flags):
    ran = octavo("bench", "serve", "http://127.0.0.1:1", *flags)
    assert (ran.code, ran.out) == (2, "")
    assert f"octavo: {flags[-2]} is for " in ran.err


def test_the_report_for_people(octavo, server):
    ran = octavo("bench", "serve", server.url, "--conversations", 2, "--turns", 1, "--output-tokens", 3)
    assert ran.code == 0
    for word in ("p50", "p99", "time to first token", "inter-token latency", "tokens/s", "resumed"):
        assert word in ran.out
    assert "2 in" in ran.out


def test_errors_are_counted_and_do_not_end_it(octavo, server, trace):
    ran = octavo("bench", "serve", server.url, "--trace", trace, "--block-tokens", 240, "--json")
    told = json.loads(ran.out)
    assert told["requests"] == {"succeeded": 1, "failed": 1}
    assert "longest context" in next(iter(told["errors"]))
    assert ran.code == 0


def test_no_success_is_a_failure(octavo, server):
    ran = octavo("bench", "serve", server.url, "--model", "another", "--conversations", 2, "--turns", 2)
    assert ran.code == 2
    assert "2 × 404" in ran.out
    assert ran.err.endswith("octavo: no request succeeded\n")


def test_a_file_that_is_no_trace_is_refused(octavo, tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(TRACE[0] | {"input_length": -1}))
    ran = octavo("bench", "serve", "http://127.0.0.1:1", "--trace", path)
    assert (ran.code, "line 1: input_length" in ran.err) == (2, True)


def test_blocks_of_another_size_are_said_with_the_flag_that_the_refusal_names(octavo, server, tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(TRACE[0] | {"input_length": 40, "hash_ids": [1, 2, 3]}))
    ran = octavo("bench", "serve", server.url, "--trace", path)
    assert (ran.code, "(--trace-block)" in ran.err) == (2, True)
    assert bench(octavo, server, "--trace", path, "--trace-block", 16)["tokens"]["prompt"] == 40


def test_a_recording_of_a_server_is_replayed(octavo, server, tmp_path):
    """As one was: hashes of blocks of 16 tokens, and what was answered in the hashes too."""
    header = {"octavo_recording": 1, "block_tokens": 16}
    asked = {"arrival_s": 0.0, "prompt_tokens": 40, "output_tokens": 24, "blocks": [7, 8, 9, 10], "resumed": {}}
    path = tmp_path / "recording.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, asked, asked)))
    server.ask(lambda engine: engine.reset_prefix_cache())
    told = bench(octavo, server, "--trace", path, "--concurrency", 1)
    assert told["tokens"] | {"cached_by_medium": {}} == {
        "prompt": 80,
        "output": 48,
        "cached": 32,
        "cached_by_medium": {},
    }


def test_prompts_share_what_their_hash_ids_share(trace):
    first, second = (session.turns[0].new_token_ids() for session in read_sessions(trace))
    assert (len(first), len(second)) == (1000, 1400)
    assert first == second[:1000]
    other = [session.turns[0].new_token_ids() for session in read_sessions(trace, Tokens(vocab_size=256, seed=1))]
    assert other[0][:100] != first[:100]


def test_of_a_long_block_only_what_a_prompt_has_is_made(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps({"timestamp": 0, "input_length": 50, "output_length": 5, "hash_ids": [7]}))

    def prompt(block_tokens):
        asked = read_trace(path, block_tokens=block_tokens)
        return replay_trace(asked, TOKENS, block_tokens=None, speed=None)[0].turns[0].new_token_ids()

    assert prompt(10**18) == prompt(512)
    assert len(prompt(10**18)) == 50


def test_the_first_request_does_not_wait_for_its_date(tmp_path):
    path = tmp_path / "trace.jsonl"
    asked = {"input_length": 600, "output_length": 9, "hash_ids": [0, 1]}
    path.write_text("".join(json.dumps(asked | {"timestamp": stamp}) + "\n" for stamp in (17e11, 17e11 + 4000)))
    sessions = replay_trace(read_trace(path), TOKENS, block_tokens=None, speed=2.0)
    assert [session.start_s for session in sessions] == [0.0, 2.0]


def test_requests_without_times_are_not_sent_at_a_speed(tmp_path):
    path = tmp_path / "trace.jsonl"
    asked = {"input_length": 600, "output_length": 9, "hash_ids": [0, 1], "session_id": "a"}
    path.write_text(json.dumps(asked | {"timestamp": 0}) + "\n" + json.dumps(asked | {"delay": 100}) + "\n")
    assert len(read_sessions(path)) == 2
    with pytest.raises(InputError, match="line 2 of the trace comes after another request's end, and has no time"):
        replay_trace(read_trace(path), TOKENS, block_tokens=None, speed=1.0)


def read_sessions(trace, tokens=TOKENS):
    return replay_trace(read_trace(trace), tokens, block_tokens=None, speed=None)


@pytest.mark.parametrize(
    "flags",
    [
        *(
            [flag, 10**9]
            for flag in ("--conversations", "--turns", "--shared-tokens", "--turn-tokens", "--output-tokens")
        ),
        ["--turns", 10**6, "--turn-tokens", 1, "--output-tokens", 1],  # few tokens, and many requests
    ],
)
def test_conversations_that_memory_would_not_hold(octavo, flags):
    ran = octavo("bench", "serve", "http://127.0.0.1:1", *flags)
    assert ran.code == 2
    assert "may have 1,000,000 of 100,000,000 together" in ran.err


def test_percentiles():
    hundred = [float(value) for value in range(1, 101)]
    assert [percentile(hundred, percent) for percent in (50, 90, 99, 100)] == [50, 90, 99, 100]
    assert percentile([3.0], 1) == 3
    assert percentile([], 50) is None
