"""Any difference in what decides bytes is another namespace; some things cannot be kept at all."""

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from octavo.errors import InputError, WeightsChangedError
from octavo.namespace import stamp_weights
from octavo.vllm_plugin.identity import describe_parts, digest_models, make_namespace, why_apart, why_not_kept
from octavo.vllm_plugin.ranks import GroupReport, GroupRule, RankReport

GROUPS = (
    GroupReport(group_id=0, rule=GroupRule.WHOLE, reach_tokens=0, tokens_per_block=16, page_bytes=4096),
    GroupReport(group_id=1, rule=GroupRule.WINDOW, reach_tokens=64, tokens_per_block=16, page_bytes=2048),
)
REPORT = RankReport(
    rank=0,
    process=1,
    groups=GROUPS,
    identity={"dtype": "bfloat16", "attention": "CPU_ATTN"},
    models=("/models/a",),
    hash_algorithm="sha256",
    started_ns=1,
)


def namespace(*reports, digests=(b"weights",), blocks_per_chunk=1, environ=None):
    return make_namespace(reports or [REPORT], list(digests), blocks_per_chunk=blocks_per_chunk, environ=environ or {})


def change(**fields):
    return msgspec.structs.replace(REPORT, **fields)


def change_group(**fields):
    return change(groups=(GROUPS[0], msgspec.structs.replace(GROUPS[1], **fields)))


def test_the_process_does_not_matter_and_nor_does_the_order_of_names():
    same = change(process=2, identity=dict(reversed(REPORT.identity.items())), models=("/elsewhere/a",))
    assert namespace(same) == namespace()
    assert namespace(environ={"PYTHONHASHSEED": "vllm-none-hash"}) == namespace()


def test_every_difference_is_another_namespace():
    others = [
        namespace(change(identity=REPORT.identity | {"dtype": "float32"})),
        namespace(change(identity=REPORT.identity | {"layout": "[]"})),
        namespace(change(hash_algorithm="sha256_cbor")),
        namespace(change(groups=GROUPS[:1])),
        namespace(change_group(reach_tokens=32)),
        namespace(change_group(tokens_per_block=32)),
        namespace(change_group(page_bytes=4096)),
        namespace(change_group(rule=GroupRule.CHUNK)),
        namespace(change_group(group_id=2)),
        namespace(REPORT, change(rank=1)),
        namespace(digests=(b"other weights",)),
        namespace(digests=(b"weights", b"draft")),
        namespace(blocks_per_chunk=2),
        namespace(environ={"PYTHONHASHSEED": "0"}),
    ]
    assert len({namespace(), *others}) == len(others) + 1


def shared(rank, num_ranks, **fields):
    """A rank whose pages are known."""
    groups = tuple(
        msgspec.structs.replace(
            group, page_bytes=group.page_bytes // num_ranks, whole_bytes=group.page_bytes, whole="heads"
        )
        for group in GROUPS
    )
    return change(**{"rank": rank, "groups": groups, "of_ranks": {"parallel": f"{rank} of {num_ranks}"}} | fields)


def test_the_number_of_ranks_does_not_matter_where_it_is_known_how_they_share_pages():
    alone, *pair = shared(0, 1), shared(0, 2), shared(1, 2)
    assert namespace(*pair) == namespace(alone)
    assert describe_parts(pair, [b"w"], blocks_per_chunk=1, environ={})["ranks"] == "any"
    opaque = tuple(msgspec.structs.replace(group, whole="", whole_bytes=0) for group in pair[1].groups)
    others = [
        namespace(pair[0], change(rank=1, groups=opaque)),
        namespace(pair[0], shared(1, 2, groups=opaque, of_ranks={"parallel": "1 of 3"})),
        namespace(pair[0], shared(1, 2, identity=REPORT.identity | {"dtype": "float16"})),
        namespace(*(shared(rank, 2, groups=opaque) for rank in range(2))),
        namespace(shared(0, 1, groups=tuple(msgspec.structs.replace(g, whole="tokens") for g in alone.groups))),
        namespace(shared(0, 1, groups=opaque)),
        namespace(shared(0, 1, groups=opaque, of_ranks={"parallel": "0 of 1 here"})),
    ]
    assert len({namespace(alone), *others}) == len(others) + 1


def test_why_another_number_of_ranks_finds_nothing():
    pair = [shared(0, 2), shared(1, 2)]
    assert not why_apart(pair)
    assert not why_apart([REPORT])
    packed = tuple(msgspec.structs.replace(g, whole="", whole_bytes=0, why_by_rank="it is packed") for g in GROUPS[:1])
    said = why_apart([shared(rank, 2, groups=packed + pair[0].groups[1:]) for rank in range(2)])
    assert said == (
        "only engines with 2 ranks can resume what these store, as it is not known how they share a page "
        "(group 0: it is packed)"
    )
    assert "the ranks differ otherwise" in why_apart([pair[0], shared(1, 2, identity={})])


def test_the_parts_of_an_identity_by_name():
    def parts(*reports, environ=None):
        return describe_parts(reports, [b"weights"], blocks_per_chunk=1, environ=environ or {})

    alone = parts(REPORT)
    assert alone["dtype"] == "bfloat16"
    assert alone["ranks"] == "1"
    assert alone["models"] not in ("", str([b"weights"]))
    assert parts(REPORT, change(rank=1)) == alone | {"ranks": "2"}
    assert parts(REPORT, change(identity=REPORT.identity | {"dtype": "float16"}))["dtype"] != "bfloat16"
    assert parts(REPORT, environ={"PYTHONHASHSEED": "7"}) == alone | {"hash_seed": "7"}
    assert alone["load_format"] == "auto"
    assert parts(change(identity=REPORT.identity | {"load_format": "pt"})) == alone | {"load_format": "pt"}
    wider = parts(change_group(page_bytes=4096))
    assert {name for name in alone if alone[name] != wider[name]} == {"groups"}


def test_what_cannot_be_kept():
    random = change(hash_algorithm="xxhash_cbor")
    assert "PYTHONHASHSEED" in why_not_kept([random], {})
    assert not why_not_kept([random], {"PYTHONHASHSEED": "0"})
    assert not why_not_kept([REPORT], {})
    assert why_not_kept([REPORT, change(why_not_kept="adapters")], {}) == "adapters"


def save(folder, content=b"1"):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(content)
    return str(folder)


def digest(*models, digests, started_ns=None, download_dir=None):
    started_ns = time.time_ns() + 1_000_000_000 if started_ns is None else started_ns
    return digest_models([change(models=models, started_ns=started_ns, download_dir=download_dir)], digests)


def test_models_by_content(tmp_path):
    a, same, other = (save(tmp_path / name, content) for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")))
    assert digest(a, digests=tmp_path) == digest(same, digests=tmp_path) != digest(other, digests=tmp_path)


def test_a_model_that_changed_since_the_engine_began_is_no_identity(tmp_path):
    model = save(tmp_path / "a")
    with pytest.raises(WeightsChangedError, match="start it again"):
        digest(model, digests=tmp_path, started_ns=stamp_weights(model).changed_ns)


def test_a_model_that_was_written_by_a_clock_ahead_is_touched(tmp_path, monkeypatch):
    model, before_ns = save(tmp_path / "a"), time.time_ns() - 3600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: before_ns)
    with pytest.raises(WeightsChangedError, match=r"a date in the future.*, touch them"):
        digest(model, digests=tmp_path, started_ns=before_ns)


@pytest.mark.parametrize("has_config", [True, False])
def test_a_model_that_vllm_downloaded_elsewhere(has_config, tmp_path):
    """It downloads weights alone into a folder of one's own; the config lies in the hub's cache."""
    pytest.importorskip("huggingface_hub", reason="needs the engine: pip install 'octavo[engine]'")
    folder = tmp_path / "models--some--body"
    model = save(folder / "snapshots" / "abc")
    if not has_config:
        Path(model, "config.json").unlink()
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    found = digest("some/body", digests=tmp_path / "digests", download_dir=str(tmp_path))
    assert found == digest(model, digests=tmp_path / "digests")


@pytest.mark.parametrize(
    "name", ["nobody/nothing", "s3://bucket/model", "nobody/nothing:Q4_K_M", "absent.gguf", "a/b/c"]
)
def test_a_model_that_is_nowhere_here(name, tmp_path):
    pytest.importorskip("huggingface_hub", reason="needs the engine: pip install 'octavo[engine]'")
    with pytest.raises(InputError, match=f"the weights of {name} are in no folder"):
        digest(name, digests=tmp_path)


def test_a_process_knows_when_it_began():
    script = "from octavo.vllm_plugin.ranks import process_started_ns; print(process_started_ns())"
    before = time.time_ns()
    began = int(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout)
    assert before - 20_000_000 < began < time.time_ns()
