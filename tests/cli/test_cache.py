"""`octavo cache`: what it says of a directory, beside an engine too; what it deletes, and what it leaves."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from octavo.chunks import ChunkBytes, make_offload_key, name_tenant
from octavo.ids import BlockHash
from octavo.tiers import TierContext, TierState
from octavo.tiers.disk import DiskSpec, inspect_directory, layout
from octavo.units import format_bytes

GOLDEN = Path(__file__).parents[1] / "tiers/golden"
DAY_NS = 86400 * 10**9

ONE, OTHER = bytes(range(16)), bytes(range(100, 116))


PARTS = {"dtype": "bfloat16", "codec": "zstd planes 1", "model": "kiel-7b", "plan": "5 sliding_window, 1 mamba"}


def open_tier(directory, namespace=ONE, identity=None):
    config = {"path": str(directory), "size": "4MiB", "segment_size": "64KiB"}
    context = TierContext(namespace=namespace, max_chunk_bytes=5000, identity=identity or {})
    return DiskSpec.from_config(config).build(context)


def store(tier, numbers):
    for number in numbers:
        key = make_offload_key(BlockHash(bytes([number]) * 32), number % 2)
        assert tier.submit_store(number, [ChunkBytes(key, [memoryview(bytearray(b"x" * 5000))], -1)])
    assert tier.flush(60.0)


@pytest.fixture
def directory(tmp_path):
    """Two namespaces, of 10 chunks and of 1."""
    for namespace, count in ((ONE, 10), (OTHER, 1)):
        tier = open_tier(tmp_path / "tier", namespace)
        store(tier, range(count))
        tier.close()
    return tmp_path / "tier"


def test_whose_a_namespace_is_stays_known_when_the_directory_was_emptied_meanwhile(tmp_path):
    tier = open_tier(tmp_path / "tier", identity=PARTS)
    store(tier, range(3))
    for file in (tmp_path / "tier").iterdir():
        file.unlink()
    assert not tier.flush(60.0), "it has noticed"
    now, is_off = 0.0, False
    while not is_off or tier.status().state is not TierState.OK:
        tier.poll(now := now + 60.0)
        is_off |= tier.status().state is not TierState.OK
        tier.wait(0.1)
    store(tier, range(5))
    tier.close()
    (found,) = inspect_directory(tmp_path / "tier").namespaces
    assert (found.chunks, found.description["model"]) == (5, "kiel-7b")


def test_ls(octavo, directory):
    ran = octavo("cache", "ls", directory)
    assert (ran.code, ran.err) == (0, "")
    (first, whose) = [line.split() for line in ran.out.splitlines() if ONE.hex()[:16] in line]
    assert first[:4] == [ONE.hex()[:16], "2", "10", "2"]
    (second, _) = [line.split() for line in ran.out.splitlines() if OTHER.hex()[:16] in line]
    assert second[:4] == [OTHER.hex()[:16], "1", "1", "1"]
    assert whose == [ONE.hex()[:16], *"????"]


def test_a_narrow_terminal_cuts_nothing_short(octavo, directory, monkeypatch):
    at_80 = octavo("cache", "ls", directory).out
    monkeypatch.setenv("COLUMNS", "40")
    assert octavo("cache", "ls", directory).out == at_80
    assert "…" not in at_80


def test_whose_a_namespace_is(octavo, directory):
    open_tier(directory, identity=PARTS).close()
    ran = octavo("cache", "ls", directory)
    (_, whose) = [line for line in ran.out.splitlines() if ONE.hex()[:16] in line]
    assert whose.split()[1:] == ["kiel-7b", "bfloat16", "zstd", "planes", "1", "5", "sliding_window,", "1", "mamba"]
    assert "kiel-7b, bfloat16, codec zstd planes 1; 5 sliding_window, 1 mamba" in octavo("cache", "stat", directory).out
    content = json.loads(octavo("cache", "ls", directory, "--json").out)
    assert content["namespaces"][0]["description"] == {"encryption": "none", **PARTS}
    assert content["namespaces"][1]["description"] == {}
    assert content["other_files"] == 0
    octavo("cache", "clear", directory, "--yes", "--namespace", ONE.hex())
    assert not list(directory.glob("namespace-*"))


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"model": 7, "dtype": ["x"], "a b": "c"}', '{"model": "\\u001b[2J[red]x"}']
)
def test_a_description_is_only_words(octavo, directory, content):
    """Whatever it holds, it is shown short, without control characters, and not as markup."""
    (directory / f"namespace-{ONE.hex()}.json").write_text(content)
    (directory / f"namespace-{OTHER.hex()}.json").symlink_to("/etc/hostname")
    ran = octavo("cache", "ls", directory)
    assert (ran.code, ran.err) == (0, "")
    assert "\x1b" not in ran.out
    assert ("?[2J[red]x" in ran.out) == ("red" in content)


def test_a_chunk_that_was_written_twice_counts_once(octavo, directory):
    """As the engine counts it."""
    tier = open_tier(directory)
    tier.remove([make_offload_key(BlockHash(bytes([number]) * 32), number % 2) for number in range(4)])
    store(tier, range(4))
    tier.close()
    content = json.loads(octavo("cache", "ls", directory, "--json").out)["namespaces"][0]
    assert content["groups"]["0"] == {"chunks": 5, "payload_bytes": 25000, "hits": 0}
    assert json.loads(octavo("cache", "verify", directory, "--json").out)["records"] == 15
    tier = open_tier(directory)
    assert tier.status().num_chunks == 10
    tier.close()


def test_stat_beside_an_engine(octavo, directory):
    tier = open_tier(directory)
    store(tier, [200])
    ran = octavo("cache", "stat", directory)
    tier.close()
    assert ran.code == 0
    assert "in use by process" in ran.out
    assert octavo("cache", "stat", directory).out.startswith(f"{directory}: not in use\n")


def test_json(octavo, directory):
    content = json.loads(octavo("cache", "ls", directory, "--json").out)
    assert [found["namespace"] for found in content["namespaces"]] == [ONE.hex(), OTHER.hex()]
    groups = content["namespaces"][0]["groups"]
    assert groups["0"] == {"chunks": 5, "payload_bytes": 25000, "hits": 0}
    assert content["total_bytes"] == sum(file.stat().st_size for file in directory.iterdir())
    assert content["other_files"] == 0
    assert json.loads(octavo("cache", "verify", directory, "--json").out)["records"] == 11


def test_verify_names_segment_and_offset(octavo, directory):
    assert octavo("cache", "verify", directory).out == "11 records, 53.7 KiB in 3 segments: 0 damaged\n"
    file = directory / "segment-000000000001.octavo"
    data = bytearray(file.read_bytes())
    data[4096 + 8192 + 4000] ^= 1  # in the second record's bytes
    file.write_bytes(data)
    ran = octavo("cache", "verify", directory)
    assert ran.code == 1
    assert ran.out.splitlines() == [
        f"{file}: offset 12288: record is damaged",
        "11 records, 53.7 KiB in 3 segments: 1 damaged",
    ]
    assert len(json.loads(octavo("cache", "verify", directory, "--json").out)["damages"]) == 1


def test_verify_tells_what_was_never_finished_from_damage(octavo, directory):
    file = directory / "segment-000000000001.octavo"
    data = file.read_bytes()
    file.write_bytes(data[: 4096 + 8192 + 5000])  # as a crash leaves it: one record, and a part of the next
    ran = octavo("cache", "verify", directory)
    assert (ran.code, ran.out.splitlines()[-1].split(": ")[1]) == (0, "0 damaged, 1 never finished")
    damaged = bytearray(data[: 4096 + 4 * 8192])
    damaged[4096 + 8192 + 4000] ^= 1
    file.write_bytes(damaged)
    ran = octavo("cache", "verify", directory)
    assert ran.code == 1
    assert f"{file}: offset 12288: record is damaged" in ran.out


def test_clear_asks_and_clears(octavo, directory, monkeypatch):
    (directory / "letter.txt").write_text("not ours")
    monkeypatch.setattr("typer.confirm", _refuse)
    assert octavo("cache", "clear", directory).code != 0
    assert len(list(directory.glob("segment-*"))) == 3
    ran = octavo("cache", "clear", directory, "--yes", "--namespace", OTHER.hex()[:6])
    assert (ran.code, ran.out.split(",")[0]) == (0, "1 segment deleted")
    assert octavo("cache", "clear", directory, "--yes").code == 0
    assert {file.name for file in directory.iterdir()} == {"lock", "letter.txt"}
    assert "no chunks here; 1 other file, 8 B" in octavo("cache", "ls", directory).out


def test_clear_asks_about_all_that_it_deletes_and_nothing_else(octavo, directory, monkeypatch):
    questions = []
    monkeypatch.setattr("typer.confirm", lambda question, **_: questions.append(question))
    sizes = [file.stat().st_size for file in sorted(directory.glob("segment-*"))]
    assert octavo("cache", "clear", directory, "--namespace", "ffff").out == "0 segments deleted, 0 B\n"
    assert octavo("cache", "clear", directory, "--salt", "nobody").out == "0 segments deleted, 0 B\n"
    assert questions == []
    shutil.copy(GOLDEN / "segment-v1.octavo", directory / "segment-000000000001.octavo")
    former = (GOLDEN / "segment-v1.octavo").stat().st_size
    octavo("cache", "clear", directory, "--namespace", OTHER.hex()[:6])
    assert octavo("cache", "clear", directory).out.startswith("2 segments deleted")
    (directory / "segment-000000000001.octavo").write_bytes((GOLDEN / "segment-v1.octavo").read_bytes())
    octavo("cache", "clear", directory)
    assert questions == [
        f"Delete 1 segment ({format_bytes(sizes[2])}) of 1 of 2 namespaces in {directory}?",
        f"Delete 2 segments ({format_bytes(former + sizes[1])}) of 1 of 1 namespace in {directory}?",
        f"Delete 1 segment ({format_bytes(former)}) in {directory}?",
    ]


def _refuse(question, *, abort):
    import typer

    assert "namespaces" in question
    assert abort
    raise typer.Abort


@pytest.mark.parametrize("stdin", ['"$@"', '"$@" <&-'], ids=["any bytes", "closed"])
def test_clear_takes_no_answer_for_a_no(directory, stdin):
    command = [sys.executable, "-W", "error", "-m", "octavo", "cache", "clear", directory]
    ran = subprocess.run(
        ["/bin/sh", "-c", stdin, "sh", *command],
        input=b"\xff\n",
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (130, b"")
    assert list(directory.iterdir())


def test_clear_is_refused_while_an_engine_runs(octavo, directory):
    tier = open_tier(directory)
    ran = octavo("cache", "clear", directory, "--yes")
    tier.close()
    assert ran.code == 2
    assert "in use by process" in ran.err
    assert len(list(directory.glob("segment-*"))) >= 3


def test_a_directory_that_is_not_ours(octavo, tmp_path):
    (tmp_path / "letter.txt").write_text("not ours")
    (tmp_path / "segment-000000000001.octavo").write_text("not ours either, whatever its name")
    for command in ("ls", "stat", "verify"):
        octavo("cache", command, tmp_path)
    assert octavo("cache", "clear", tmp_path, "--yes").code == 0
    assert len(list(tmp_path.iterdir())) == 3, "both files, and the lock that clearing took"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert octavo("cache", "ls", empty).out.startswith(f"{empty}: no chunks here")
    assert octavo("cache", "clear", empty, "--yes").out == "0 segments deleted, 0 B\n"
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("command", ["ls", "stat", "verify", "clear"])
def test_a_directory_that_is_not_there(octavo, tmp_path, command):
    ran = octavo("cache", command, tmp_path / "absent")
    assert ran.code == 2
    assert "No such file or directory" in ran.err


def test_a_namespace_that_is_no_number(octavo, directory):
    ran = octavo("cache", "clear", directory, "--yes", "--namespace", "xyz")
    assert ran.code == 2
    assert "hexadecimal" in ran.err


def test_clear_of_one_tenant_leaves_the_others(octavo, tmp_path):
    directory = tmp_path / "tier"
    tier = open_tier(directory)
    for number in range(12):
        key = make_offload_key(BlockHash(bytes([number]) * 32), 0)
        salt = [None, "team-a", "team-b"][number % 3]
        chunk = ChunkBytes(key, [memoryview(bytearray(bytes([number]) * 5000))], -1, tenant=name_tenant(salt))
        assert tier.submit_store(number, [chunk])
    assert tier.flush(60.0)
    tier.close()
    ran = octavo("cache", "clear", directory, "--yes", "--salt", "team-a")
    assert (ran.code, ran.out) == (0, "0 segments and 4 records within others deleted, 32 KiB\n")
    written = b"".join(file.read_bytes() for file in directory.glob("segment-*"))
    assert [bytes([number]) * 5000 in written for number in range(12)] == [number % 3 != 1 for number in range(12)]
    assert octavo("cache", "verify", directory).out == "8 records, 39.1 KiB in 2 segments: 0 damaged\n"
    tier = open_tier(directory)
    keys = [make_offload_key(BlockHash(bytes([number]) * 32), 0) for number in range(12)]
    assert tier.lookup(keys) == [0 if number % 3 == 1 else -1 for number in range(12)]
    tier.close()
    assert octavo("cache", "clear", directory, "--yes", "--salt", "team-a").out.startswith("0 segments deleted, 0 B")


def test_clear_of_what_is_old(octavo, directory):
    assert octavo("cache", "clear", directory, "--yes", "--older-than", "7d").out.startswith("0 segments deleted")
    old = directory / "segment-000000000001.octavo"
    header = layout.parse_segment_header(old.read_bytes()[:4096])
    old.write_bytes(
        layout.pack_segment_header(header._replace(created_ns=time.time_ns() - 8 * DAY_NS)) + old.read_bytes()[4096:]
    )
    assert octavo("cache", "clear", directory, "--yes", "--older-than", "7d").out.startswith("1 segment deleted")
    assert not old.exists()
    assert octavo("cache", "clear", directory, "--yes", "--older-than", "soon").err.startswith("octavo: --older-than: ")
