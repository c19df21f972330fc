"""`octavo events`: what it shows, keeps and plays again, and what it says about bad input."""

import contextlib
import json
import os
import signal
import stat
import subprocess
import threading

import pytest

from octavo.cli import run
from octavo.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Delivered,
    KVEventBatch,
    PublisherConfig,
    SourceConfig,
    Subscriber,
    SubscriberConfig,
    ZmqPublisher,
)
from rigs.octavo_process import start_octavo
from rigs.ports import free_port

LOOPBACK = "tcp://127.0.0.1:0"
PATIENCE_S = 300.0


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")


BATCHES = [
    KVEventBatch(
        ts=1_700_000_000.25,
        events=[
            BlockStored(
                block_hashes=[0x4A9BC32D1F18A230, 1, 2, 3],
                parent_block_hash=0xCF37F3DF524454B2,
                token_ids=list(range(64)),
                block_size=16,
                lora_id=None,
                medium="GPU",
                lora_name=None,
                group_idx=1,
                kv_cache_spec_kind="sliding_window",
                kv_cache_spec_sliding_window=128,
            ),
            BlockRemoved(block_hashes=[b"\xba\x68\xe0\x35\x0c"], medium="CPU", group_idx=0),
        ],
    ),
    KVEventBatch(ts=1_700_000_001.0, events=[AllBlocksCleared()]),
    KVEventBatch(ts=1_700_000_002.0, events=[BlockRemoved(block_hashes=[5], medium="\x1b[2J", group_idx=None)]),
]


@contextlib.contextmanager
def publisher(*more, **options):
    with ZmqPublisher(PublisherConfig(endpoint=LOOPBACK, replay_endpoint=LOOPBACK, **options)) as zmq_publisher:
        for batch in (*BATCHES, *more):
            zmq_publisher.publish(batch)
        while zmq_publisher.stats().sent_batches < len(BATCHES) + len(more):
            pass
        yield zmq_publisher


def test_tail(octavo):
    with publisher(topic="kv") as heard:
        shown = octavo("events", "tail", heard.endpoint, "--replay", heard.replay_endpoint, "--limit", 4)
    lines = shown.out.splitlines()
    assert (shown.code, shown.err, len(lines)) == (0, "", 4)
    assert "kv #0" in lines[0]
    assert "stored   group 1 sliding_window(128)  GPU  4 blocks of 16, 64 tokens" in lines[0]
    assert lines[0].endswith("4a9bc32d 00000000 00000000 ...  after cf37f3df")
    assert lines[1].endswith("removed  group 0  CPU  1 block  ba68e035")
    assert lines[2].endswith("#1       cleared  all blocks")
    assert lines[3].endswith("removed  no group  ?[2J  1 block  00000000")


def test_tail_of_one_group_as_json(octavo):
    with publisher() as heard:
        arguments = ["--replay", heard.replay_endpoint, "--limit", 2, "--group", 0, "--json"]
        shown = octavo("events", "tail", heard.endpoint, *arguments)
    removed, cleared = map(json.loads, shown.out.splitlines())
    assert (removed["type"], removed["sequence"], removed["group_idx"]) == ("BlockRemoved", 0, 0)
    assert removed["block_hashes"] == ["ba68e0350c"]
    assert cleared["type"] == "AllBlocksCleared"


@pytest.mark.parametrize("as_json", [True, False])
def test_resyncs_are_shown(octavo, as_json):
    with publisher(replay_batches=1) as heard:
        arguments = ["--replay", heard.replay_endpoint, "--limit", 2, *(["--json"] if as_json else [])]
        shown = octavo("events", "tail", heard.endpoint, *arguments)
    first = shown.out.splitlines()[0]
    if as_json:
        assert json.loads(first)["reason"] == "late join"
    else:
        assert first == "RESYNC: late join, expected #0, got #2; its state is unknown"


@pytest.mark.parametrize("as_json", [True, False])
def test_the_end_of_a_telling_of_all_is_shown_to_whoever_heard_it(octavo, as_json):
    tellings = [KVEventBatch(ts=0.0, events=[], whole_since=since) for since in (1, 2)]
    with publisher(*tellings, replay_batches=3) as heard:
        arguments = ["--replay", heard.replay_endpoint, "--limit", 3, *(["--json"] if as_json else [])]
        shown = octavo("events", "tail", heard.endpoint, *arguments)
    *_, last = shown.out.splitlines()
    if as_json:
        assert json.loads(last) == {"type": "Whole", "topic": "", "whole_since": 2}
    else:
        assert last == f"WHOLE {heard.endpoint}: all that it holds has been told since #2"


def record(octavo, file, *more, num=3):
    with publisher(topic="kv") as heard:
        arguments = ["events", "record", heard.endpoint, file, "--replay", heard.replay_endpoint]
        return octavo(*arguments, "--limit", num, *more)


def test_what_was_recorded_is_replayed_as_it_was(octavo, tmp_path):
    file = tmp_path / "events.jsonl"
    kept = record(octavo, file)
    assert (kept.code, kept.out, kept.err) == (0, "", "")
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert [(line["topic"], line["sequence"]) for line in lines] == [("kv", 0), ("kv", 1), ("kv", 2)]
    config = SubscriberConfig(sources=(SourceConfig(endpoint=LOOPBACK, bind=True),))
    items = []
    with Subscriber(config) as reader:
        endpoint = reader.endpoints[0]
        codes = []
        player = threading.Thread(
            target=lambda: codes.append(run(["events", "replay", str(file), endpoint, "--connect", "--no-wait"]))
        )
        player.start()
        while len(items) < 3:
            items.append(reader.poll(PATIENCE_S))
        player.join()
    assert codes == [0]
    assert all(isinstance(item, Delivered) for item in items)
    assert [(item.topic, item.sequence) for item in items] == [("kv", 0), ("kv", 1), ("kv", 2)]
    assert [item.batch.events for item in items] == [batch.events for batch in BATCHES]


def test_a_recording_is_bounded_and_whole_and_its_owners(octavo, tmp_path):
    file = tmp_path / "events.jsonl"
    kept = record(octavo, file, "--max-bytes", "700B")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "it may hold the tokens of prompts"
    assert kept.code == 0
    assert "is full" in kept.err
    assert 0 < file.stat().st_size <= 700
    assert file.read_bytes().endswith(b"\n")


def test_a_file_that_is_there_is_not_overwritten(octavo, tmp_path):
    file = tmp_path / "events.jsonl"
    file.write_text("precious")
    kept = record(octavo, file)
    remedy = "the file is there already, and is kept: name a new one, or remove it"
    assert (kept.code, " ".join(kept.err.split())) == (2, f"octavo: {file}: {remedy}")
    assert file.read_text() == "precious"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "truncated"),
        ("[]\n", "Expected `object`, got `array`"),
        ("nonsense\n", "malformed"),
        ('{"topic":"","sequence":-1,"received":1.0,"payload":""}\n', "`int` >= 0"),
        ('{"topic":"","sequence":"1","received":1.0,"payload":""}\n', "$.sequence"),
        ('{"topic":"","sequence":1,"received":"now","payload":""}\n', "$.received"),
        ('{"topic":"","sequence":1,"received":1.0,"payload":"%%"}\n', "base64"),
        ('{"topic":"","sequence":1,"received":1.0,"payload":"AAAA"}\n', "not a batch of events"),
        ('{"topic":"","sequence":1,"received":1.0}\n', "payload"),
    ],
)
def test_a_damaged_line_is_named_and_nothing_is_sent(octavo, tmp_path, line, what):
    file = tmp_path / "events.jsonl"
    assert record(octavo, file).code == 0
    with file.open("a") as damaged:
        damaged.write(line)
    played = octavo("events", "replay", file, LOOPBACK)
    assert played.code == 2
    assert f"{file}, line 4: " in played.err
    assert what in played.err or "not whole" in played.err
    assert played.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["tail", "nonsense"], "'nonsense' is no endpoint"),
        (["tail", "tcp://*:5557"], "name the publisher's host, or bind"),
        (["tail", "tcp://127.0.0.1:1", "--replay", "x"], "'x' is no endpoint"),
        (["tail", "tcp://127.0.0.1:1", "--group", "-1"], "--group"),
        (["tail", "tcp://127.0.0.1:1", "--limit", "0"], "--limit"),
        (["tail", "tcp://no.such.host.invalid:1", "--bind"], "cannot bind"),
        (["record", "tcp://127.0.0.1:1", "/no/such/folder/file"], "/no/such/folder/file: No such file or directory"),
        (["record", "tcp://127.0.0.1:1", "f", "--max-bytes", "many"], "--max-bytes"),
        (["replay", "absent.jsonl", "tcp://*:0"], "absent.jsonl: No such file or directory"),
        (["replay", "absent.jsonl", "tcp://*:0", "--speed", "0"], "--speed"),
        (
            ["replay", "absent.jsonl", "tcp://*:0", "--subscriber-timeout", "0"],
            "must be more than 0 and at most 3600, not 0.0",
        ),
        (["replay", os.devnull, "tcp://127.0.0.1:0", "--subscriber-timeout", "0.01"], "nobody subscribed"),
        (["replay", os.devnull, "nonsense"], "'nonsense' is no endpoint"),
    ],
)
def test_bad_input_is_one_line(octavo, arguments, complaint):
    asked = octavo("events", *arguments)
    assert (asked.code, asked.out, asked.err.count("\n")) == (2, "", 1)
    assert complaint in asked.err


def started(*arguments, **options):
    return start_octavo(*arguments, python=["-W", "error"], **options)


def test_ctrl_c_ends_it_cleanly():
    with publisher() as heard:
        process = started("events", "tail", heard.endpoint, "--replay", heard.replay_endpoint, stdout=subprocess.PIPE)
        assert "stored" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (130, "")
    assert out == "" or out.endswith("\n")


def test_a_reader_that_has_gone_ends_it():
    read_end, write_end = os.pipe()
    os.close(read_end)
    with publisher() as heard:
        process = started("events", "tail", heard.endpoint, "--replay", heard.replay_endpoint, stdout=write_end)
        os.close(write_end)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, "")


def test_it_binds_for_a_publisher_that_connects(octavo):
    free = f"tcp://127.0.0.1:{free_port()}"
    with ZmqPublisher(PublisherConfig(endpoint=free, bind=False)) as heard:
        has_ended = threading.Event()

        def publish():
            while not has_ended.wait(0.02):
                heard.publish(BATCHES[1])

        thread = threading.Thread(target=publish)
        thread.start()
        shown = octavo("events", "tail", free, "--bind", "--limit", 2)
        has_ended.set()
        thread.join()
    assert shown.code == 0
    assert shown.out.splitlines()[-1].endswith("cleared  all blocks")
