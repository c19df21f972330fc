"""`octavo cache`: what it says of a directory, beside an engine too; what it deletes, and what it leaves."""

import json

import pytest

from octavo.chunks import ChunkBytes, make_offload_key
from octavo.ids import BlockHash
from octavo.tiers import TierContext
from octavo.tiers.disk import DiskConfig, DiskIO, DiskTier

ONE, OTHER = bytes(range(16)), bytes(range(100, 116))


def open_tier(directory, namespace=ONE):
    config = DiskConfig.from_mapping({"path": str(directory), "size": "4MiB", "segment_size": "64KiB"})
    return DiskTier(config, TierContext(namespace=namespace, max_chunk_bytes=5000), DiskIO())


def store(tier, numbers):
    for number in numbers:
        key = make_offload_key(BlockHash(bytes([number]) * 32), number % 2)
        assert tier.submit_store(number, [ChunkBytes(key, [memoryview(bytearray(b"x" * 5000))], -1)])
    assert tier.flush(10.0)


@pytest.fixture
def directory(tmp_path):
    """Two namespaces, of 10 chunks and of 1."""
    for namespace, count in ((ONE, 10), (OTHER, 1)):
        tier = open_tier(tmp_path / "tier", namespace)
        store(tier, range(count))
        tier.close()
    return tmp_path / "tier"


def test_ls(octavo, directory):
    ran = octavo("cache", "ls", directory)
    assert (ran.code, ran.err) == (0, "")
    (first,) = [line.split() for line in ran.out.splitlines() if ONE.hex()[:16] in line]
    assert first[:4] == [ONE.hex()[:16], "2", "10", "2"]
    (second,) = [line.split() for line in ran.out.splitlines() if OTHER.hex()[:16] in line]
    assert second[:4] == [OTHER.hex()[:16], "1", "1", "1"]


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
    assert groups["0"] == {"records": 5, "payload_bytes": 25000, "hits": 0}
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
    assert (ran.code, ran.out.split(",")[0]) == (0, "1 segments deleted")
    assert octavo("cache", "clear", directory, "--yes").code == 0
    assert {file.name for file in directory.iterdir()} == {"lock", "letter.txt"}
    assert "no chunks here; 1 other files, 8 B" in octavo("cache", "ls", directory).out


def _refuse(question, *, abort):
    import typer

    assert "namespaces" in question
    assert abort
    raise typer.Abort


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
