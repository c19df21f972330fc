"""Any difference in what decides bytes is another namespace; some things cannot be kept at all."""

import msgspec
import pytest

from octavo.errors import InputError
from octavo.vllm_plugin.identity import digest_models, make_namespace, why_not_kept
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


def test_what_cannot_be_kept():
    random = change(hash_algorithm="xxhash_cbor")
    assert "PYTHONHASHSEED" in why_not_kept([random], {})
    assert not why_not_kept([random], {"PYTHONHASHSEED": "0"})
    assert not why_not_kept([REPORT], {})
    assert why_not_kept([REPORT, change(why_not_kept="adapters")], {}) == "adapters"


def test_models_by_content(tmp_path):
    def save(name, content):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(content)
        return str(folder)

    a, same, other = save("a", b"1"), save("b", b"1"), save("c", b"2")
    assert digest_models([a], tmp_path) == digest_models([same], tmp_path) != digest_models([other], tmp_path)


def test_a_model_that_is_nowhere_here(tmp_path):
    pytest.importorskip("huggingface_hub")
    with pytest.raises(InputError, match="nobody/nothing are in no folder"):
        digest_models(["nobody/nothing"], tmp_path)
