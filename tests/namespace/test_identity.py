"""The namespace: any difference in what decides a chunk's bytes is another one; and weights by content."""

import dataclasses
import json
import os
import time
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

from octavo.errors import InputError, WeightsChangedError
from octavo.hashing import PLAIN, RequestIdentity
from octavo.namespace.identity import CacheIdentity, encode, make_namespace, may_persist
from octavo.namespace.weights import digest_weights, stamp_weights
from octavo.planning import plan_kv_cache
from octavo.specs import (
    CacheDType,
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    MambaSpec,
    MLAAttentionSpec,
    RequestLimits,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)


def plan(*, block_size=16, window=128, dtype=CacheDType.BFLOAT16, memory_bytes=1 << 26, first="layers.0"):
    shape = {"num_kv_heads": 2, "head_size": 64, "dtype": dtype}
    layers = {
        first: FullAttentionSpec(block_size=block_size, **shape),
        "layers.1": FullAttentionSpec(block_size=block_size, **shape),
        "layers.2": SlidingWindowSpec(block_size=block_size, sliding_window=window, **shape),
    }
    return plan_kv_cache(layers, memory_bytes=memory_bytes, limits=RequestLimits(max_model_len=1024))


IDENTITY = CacheIdentity(
    model_digest=b"w" * 32,
    dtype="bfloat16",
    config=plan(),
    blocks_per_chunk=(1, 2),
    hash_algorithm="sha256_int32",
    hash_seed="seed",
    attention_backend="FLASH_ATTN",
    computed_on="",
)


def test_equal_identities_share_a_namespace():
    namespace = make_namespace(IDENTITY)
    assert len(namespace) == 16
    assert make_namespace(dataclasses.replace(IDENTITY, config=plan())) == namespace
    assert make_namespace(dataclasses.replace(IDENTITY, config=plan(memory_bytes=1 << 27))) == namespace, (
        "how much memory there is does not matter"
    )


_HEADS = {"block_size": 16, "num_kv_heads": 2, "head_size": 64}


@pytest.mark.parametrize(
    ("spec", "digest"),
    [
        (FullAttentionSpec(**_HEADS), "bc5d97d5821d72e1"),
        (SinkFullAttentionSpec(**_HEADS, sink_len=4), "d48a5d2c63498be8"),
        (MLAAttentionSpec(block_size=16, head_size=576), "2aec1e2c38f28d68"),
        (SlidingWindowSpec(**_HEADS, sliding_window=128), "7d5e6bbd0e9dcabb"),
        (SlidingWindowMLASpec(block_size=16, head_size=576, sliding_window=128), "db62f0086949dcc6"),
        (ChunkedLocalAttentionSpec(**_HEADS, attention_chunk_size=128), "00be54be88bdd8c5"),
        (
            MambaSpec(block_size=16, shapes=((3, 8), (4, 8)), dtypes=(CacheDType.BFLOAT16, CacheDType.FLOAT32)),
            "6b70044a974ad7e9",
        ),
        (CrossAttentionSpec(**_HEADS), "57e43fa2dd2ba44d"),
        (CircularBufferSpec(**_HEADS, tokens_per_state=4), "319f50c3d957a5ce"),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_a_new_version_finds_what_a_former_one_stored(spec, digest):
    """Another digest is another namespace: all that is on the disks of models with such layers is lost. A field of a
    spec on which no chunk's bytes depend says so (`decides_bytes`)."""
    assert sha256(encode(spec)).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    "change",
    [
        {"model_digest": b"v" * 32},
        {"dtype": "float16"},
        {"config": plan(block_size=32)},
        {"config": plan(window=256)},
        {"config": plan(dtype=CacheDType.FLOAT16)},
        {"config": plan(first="layers.9")},
        {"blocks_per_chunk": (2, 1)},
        {"hash_algorithm": "sha256_cbor"},
        {"hash_seed": ""},
        {"attention_backend": "TRITON_ATTN"},
        {"computed_on": "another device"},
        {"tensor_parallel_size": 2},
        {"tensor_parallel_size": 2, "tensor_parallel_rank": 1},
        {"pipeline_parallel_size": 2},
        {"pipeline_parallel_size": 2, "pipeline_parallel_rank": 1},
    ],
    ids=str,
)
def test_any_difference_is_another_namespace(change):
    assert make_namespace(dataclasses.replace(IDENTITY, **change)) != make_namespace(IDENTITY)


def test_the_layout_of_pages_counts():
    group = IDENTITY.config.groups[0]
    moved = dict(reversed(group.layer_offsets.items()))
    assert len(moved) > 1
    other = dataclasses.replace(group, layer_offsets=moved)
    config = dataclasses.replace(IDENTITY.config, groups=(other, *IDENTITY.config.groups[1:]))
    assert make_namespace(dataclasses.replace(IDENTITY, config=config)) != make_namespace(IDENTITY)


def test_the_namespace_of_today_is_that_of_tomorrow():
    """It is on disks: whoever changes it throws away what is there, and should mean to."""
    fields = {"a": (1, True, None, 2.5), "b": ["x", b"y", CacheDType.BFLOAT16]}
    assert encode(fields).hex() == GOLDEN_ENCODING


GOLDEN_ENCODING = (
    "6d00000000000000a1730000000000000001616c000000000000003a69000000000000000131740000000000000001016e00"
    "000000000000006600000000000000143078312e34303030303030303030303030702b31730000000000000001626c000000"
    "0000000041730000000000000001786200000000000000017965000000000000002473000000000000000a43616368654454"
    "79706573000000000000000862666c6f61743136"
)

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


def _typed(value):
    """A value in which True and 1 differ, and the order of a mapping counts."""
    if isinstance(value, dict):
        return ("dict", *((k, _typed(v)) for k, v in value.items()))
    if isinstance(value, tuple):
        return ("tuple", *map(_typed, value))
    return type(value).__name__, value


@given(_VALUES, _VALUES)
def test_the_encoding_is_one_to_one(one, other):
    assert (encode(one) == encode(other)) == (_typed(one) == _typed(other))


def test_what_has_no_one_encoding_is_refused():
    with pytest.raises(InputError, match="object has no one encoding"):
        encode([object()])
    with pytest.raises(InputError, match="digest_weights"):
        make_namespace(dataclasses.replace(IDENTITY, model_digest=b""))
    with pytest.raises(InputError, match="1 blocks_per_chunk for 2 groups"):
        make_namespace(dataclasses.replace(IDENTITY, blocks_per_chunk=(1,)))


def test_an_adapter_known_by_name_only_leaves_nothing_behind():
    assert may_persist(PLAIN)
    assert may_persist(RequestIdentity(cache_salt="tenant"))
    assert may_persist(RequestIdentity(lora_name="tuned", lora_digest=b"content"))
    assert not may_persist(RequestIdentity(lora_name="tuned", lora_path="/loras/tuned"))


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"rope_theta": 1}')
    (folder / "model-1.safetensors").write_bytes(b"weights")
    (folder / "README.md").write_text("nothing that counts")
    return folder


def test_weights_count_by_content(model, tmp_path):
    digest = digest_weights(model)
    assert len(digest) == 32
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in model.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    (copy / "README.md").write_text("other words")
    assert digest_weights(copy) == digest
    assert digest_weights(model, overrides={"max_model_len": 9}) != digest
    (copy / "config.json").write_text('{"rope_theta": 2}')
    assert digest_weights(copy) != digest
    (copy / "config.json").write_text('{"rope_theta": 1}')
    (copy / "modeling_own.py").write_text("its own code")
    assert digest_weights(copy) != digest
    (model / "model-1.safetensors").rename(model / "model-2.safetensors")
    assert digest_weights(model) != digest


@pytest.fixture
def later(monkeypatch):
    """The files that a test has just made are old."""
    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + 60_000_000_000)


@pytest.mark.usefixtures("later")
def test_weights_are_read_once(model, tmp_path, monkeypatch):
    memory = tmp_path / "memory"
    digest = digest_weights(model, memory)
    monkeypatch.setattr("octavo.namespace.weights._digest_file", lambda file: pytest.fail(f"{file} is read again"))
    assert digest_weights(model, memory) == digest


def change_in_place(file, content):
    """Another content under the same size and time of modification."""
    status = file.stat()
    while file.stat().st_ctime_ns == status.st_ctime_ns:  # the file system's clock ticks every few milliseconds
        file.write_bytes(content)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_what_changed_a_moment_ago_is_read_again(model, tmp_path, monkeypatch):
    """Where the file system counts whole seconds, a change in the same second has the same stamp."""
    stat = Path.stat

    def whole_seconds(path, **options):
        told = stat(path, **options)
        times = {name: getattr(told, name) // 10**9 * 10**9 for name in ("st_mtime_ns", "st_ctime_ns")}
        names = ("st_mode", "st_size", "st_ino", "st_dev")
        return SimpleNamespace(**{name: getattr(told, name) for name in names}, **times)

    monkeypatch.setattr(Path, "stat", whole_seconds)
    memory = tmp_path / "memory"
    digest = digest_weights(model, memory)
    (model / "config.json").write_text('{"rope_theta": 2}')
    assert digest_weights(model, memory) != digest


@pytest.mark.usefixtures("later")
def test_a_change_in_place_that_keeps_the_time_of_modification_is_read(model, tmp_path):
    memory = tmp_path / "memory"
    digest = digest_weights(model, memory)
    change_in_place(model / "model-1.safetensors", b"WEIGHTS")
    assert digest_weights(model, memory) == digest_weights(model) != digest


def replace_folder(model):
    old = model.with_name("old")
    model.rename(old)
    model.mkdir()
    for file in old.iterdir():
        (model / file.name).write_bytes(file.read_bytes())


@pytest.mark.parametrize(
    "change",
    [
        lambda model: change_in_place(model / "model-1.safetensors", b"WEIGHTS"),
        lambda model: change_in_place(model / "config.json", b'{"rope_theta": 2}'),
        lambda model: (model / "model-2.safetensors").write_bytes(b"more"),
        lambda model: (model / "config.json").unlink(),
        replace_folder,
    ],
)
def test_weights_that_change_after_they_were_loaded_are_no_identity(model, change):
    loaded = stamp_weights(model)
    assert digest_weights(model, loaded=loaded) == digest_weights(model)
    change(model)
    with pytest.raises(WeightsChangedError, match="files have changed since the model was loaded"):
        digest_weights(model, loaded=loaded)
    assert stamp_weights(model).changed_ns >= loaded.changed_ns


def test_a_link_or_a_folder_that_is_replaced_has_changed(model, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(model)
    before = stamp_weights(link)
    other = tmp_path / "other"
    other.mkdir()
    for file in model.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    while (after := stamp_weights(link)).changed_ns == before.changed_ns:
        link.unlink()
        link.symlink_to(other)
    assert after.changed_ns == link.lstat().st_ctime_ns
    assert after.files != before.files


@pytest.mark.usefixtures("later")
def test_a_damaged_memory_is_no_memory(model, tmp_path):
    memory = tmp_path / "memory"
    digest = digest_weights(model, memory)
    (kept,) = memory.iterdir()
    whole = kept.read_bytes()
    for damaged in (*(whole[:length] for length in range(0, len(whole), 7)), b"[]", b'{"version": 1, "files": 3}'):
        kept.write_bytes(damaged)
        assert digest_weights(model, memory) == digest
    entries = json.loads(whole)
    kept.write_text(json.dumps({**entries, "files": {name: ["x"] for name in entries["files"]}}))
    assert digest_weights(model, memory) == digest


def test_a_memory_that_cannot_be_written_is_done_without(model, tmp_path):
    (tmp_path / "file").write_text("")
    assert digest_weights(model, tmp_path / "file" / "memory") == digest_weights(model)


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(InputError, match="no weights here"):
        digest_weights(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        digest_weights(tmp_path / "absent")
