"""Why a restart is cold is told in one line, and nothing that lies in the folder can do harm."""

import dataclasses
import json
import os

import pytest

from octavo.namespace import describe_identity, make_namespace, read_description, why_cold
from octavo.namespace.identity import CacheIdentity
from octavo.planning import plan_kv_cache
from octavo.specs import FullAttentionSpec, RequestLimits

PLAN = plan_kv_cache(
    {"layers.0": FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64)},
    memory_bytes=1 << 26,
    limits=RequestLimits(max_model_len=1024),
)
IDENTITY = CacheIdentity(
    model_digest=b"w" * 32,
    dtype="bfloat16",
    config=PLAN,
    blocks_per_chunk=(1,),
    hash_algorithm="sha256_cbor",
    hash_seed="",
    attention_backend="torch",
    computed_on="",
)
PARTS = {"dtype": "bfloat16", "model_digest": "00", "vllm": "0.32.0"}


def grow_old(folder):
    """A second passes: the file system's clock may tick only every few milliseconds."""
    for file in folder.iterdir():
        status = file.stat()
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns - 10**9))


def start(folder, identity=IDENTITY, **changes):
    grow_old(folder)
    identity = dataclasses.replace(identity, **changes)
    return why_cold(folder, make_namespace(identity), describe_identity(identity))


def test_the_parts_that_differ_are_told(tmp_path):
    assert start(tmp_path) == ""
    assert start(tmp_path) == ""
    said = start(tmp_path, dtype="float16")
    assert said.endswith("another identity: dtype was 'bfloat16' and is 'float16'")
    assert start(tmp_path, dtype="float16") == ""
    assert start(tmp_path) == ""  # its own chunks are there too
    said = start(tmp_path, model_digest=b"v" * 32, hash_seed="1", blocks_per_chunk=(2,))
    assert [part.split()[0] for part in said.split(": ")[1].split("; ")] == [
        "model_digest",
        "blocks_per_chunk",
        "hash_seed",
    ]
    assert len(said) < 400


def test_after_a_downgrade_what_the_newer_version_knew_is_told(tmp_path):
    why_cold(tmp_path, b"0" * 16, PARTS | {"computed_on": "torch 2.13.0"})
    said = why_cold(tmp_path, b"1" * 16, PARTS)
    assert said.endswith("another identity: computed_on was 'torch 2.13.0' and is absent")


def test_every_part_of_the_namespace_has_a_name(tmp_path):
    names = {field.name for field in dataclasses.fields(CacheIdentity)} | {"format_version"}
    assert set(describe_identity(IDENTITY)) == names | {"model", "plan"}
    assert all(len(part) <= 60 for part in describe_identity(IDENTITY).values())


def test_labels_are_no_reason(tmp_path):
    assert describe_identity(IDENTITY, model="kiel")["plan"] == "1 full_attention"
    why_cold(tmp_path, b"0" * 16, describe_identity(IDENTITY, model="kiel"))
    said = why_cold(tmp_path, b"1" * 16, describe_identity(dataclasses.replace(IDENTITY, dtype="float16"), model="b"))
    assert said.endswith("another identity: dtype was 'bfloat16' and is 'float16'")
    assert read_description(tmp_path, (b"1" * 16).hex())["model"] == "b"
    assert read_description(tmp_path, "00" * 16) == {}


def test_files_are_few(tmp_path):
    for number in range(40):
        grow_old(tmp_path)
        why_cold(tmp_path, number.to_bytes(16, "big"), PARTS)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == [f"namespace-{number.to_bytes(16, 'big').hex()}.json" for number in range(24, 40)]


def test_the_oldest_one_of_many_stays_if_it_is_the_engines_own(tmp_path):
    """Otherwise its next start would be told to be cold."""
    for number in range(16):
        namespace = number.to_bytes(16, "big")
        why_cold(tmp_path, namespace, PARTS)
        os.utime(tmp_path / f"namespace-{namespace.hex()}.json", (number, number))
    assert why_cold(tmp_path, bytes(16), PARTS) == ""
    assert why_cold(tmp_path, bytes(16), PARTS) == ""
    assert len(list(tmp_path.iterdir())) == 16


@pytest.mark.parametrize(
    "content", [b"", b"[", b"[1]", b'"x"', b"null", b"[" * 100_000, b'{"dtype": "' + b"x" * 100_000 + b'"}', b"\xff"]
)
def test_what_others_wrote_does_no_harm(content, tmp_path):
    (tmp_path / f"namespace-{'00' * 16}.json").write_bytes(content)
    said = why_cold(tmp_path, b"1" * 16, PARTS)
    assert "dtype was absent and is 'bfloat16'" in said


def test_what_others_wrote_is_shown_short_and_plain(tmp_path):
    hostile = {"dtype": "\x1b[2J\n" + "x" * 1000, "\x1b[2J other": "y"}
    (tmp_path / f"namespace-{'00' * 16}.json").write_text(json.dumps(hostile))
    said = why_cold(tmp_path, b"1" * 16, PARTS)
    assert said.isprintable()
    assert len(said) < 400
    assert "other" not in said.split(": ")[1]


def test_links_are_not_followed_and_a_folder_that_cannot_be_used_is_left_alone(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({"dtype": "secret"}))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / f"namespace-{'00' * 16}.json").symlink_to(secret)
    assert why_cold(folder, b"1" * 16, PARTS) == ""
    assert json.loads(secret.read_text()) == {"dtype": "secret"}
    assert why_cold(tmp_path / "absent", b"1" * 16, PARTS) == ""
