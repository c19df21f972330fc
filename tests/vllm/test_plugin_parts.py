"""Parts of the adapter alone: rows of chunks, whose chunks are not kept, and what is recorded of a request."""

import json
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

with warnings.catch_warnings():  # torch's, while vLLM is imported
    warnings.simplefilter("ignore")
    pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")
    from vllm import PoolingParams, SamplingParams
    from vllm.config import LoadConfig
    from vllm.utils.hashing import sha256
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.kv_cache_interface import CrossAttentionSpec
    from vllm.v1.kv_offload.base import ReqContext
    from vllm.v1.request import Request, RequestStatus

    from octavo.errors import InputError
    from octavo.vllm_plugin.adapter.describe import (
        name_weights,
        rule_of,
        tell_why_not_copied,
        tell_why_not_kept,
        tell_why_not_resumed,
        tell_why_prompts_only,
    )
    from octavo.vllm_plugin.adapter.recording import RecorderOfRequests
    from octavo.vllm_plugin.adapter.worker import fill_load, fill_store

pytestmark = [pytest.mark.vllm, pytest.mark.every_vllm, pytest.mark.filterwarnings("ignore")]


def test_rows_of_chunks():
    assert fill_load([5, 6, 7], 1, 2, 3) == [[-1, 5, 6], [7, -1, -1]]
    assert fill_store([5, 6, 7], 0, 1, 3, 0) == [[5, 6, 7]]
    assert fill_store([6, 7, 1, 2, 3], 1, 2, 3, 1) == [[6, 6, 7], [1, 2, 3]]
    assert fill_store([7, 1, 2, 3], 2, 2, 3, 1) == [None, [1, 2, 3]]  # somebody would ask for the second
    assert fill_store([5, 7], 0, 1, 3, 1) == [None]  # which is missing, the second or the third?


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({}, ""),
        ({"load_config": SimpleNamespace(load_format="dummy")}, "the weights are random"),
        ({"load_config": SimpleNamespace(load_format="tensorizer")}, "tensorizer may have its weights from a place"),
        ({"load_config": SimpleNamespace(load_format="npcache")}, "npcache may have its weights from a place"),
        ({"load_config": SimpleNamespace(load_format="a plug-in's own")}, "a plug-in's own may have its weights"),
        ({"load_config": SimpleNamespace(load_format="sharded_state")}, ""),
        ({"speculative_config": SimpleNamespace(draft_load_config=LoadConfig(load_format="dummy"))}, "are random"),
        ({"weight_transfer_config": object()}, "weights come into the running engine"),
    ],
)
def test_whose_weights_are_not_the_folders_keeps_nothing(named: dict[str, Any], said: str) -> None:
    usual = {
        "load_config": SimpleNamespace(load_format="auto"),
        "weight_transfer_config": None,
        "speculative_config": None,
    }
    reason = tell_why_not_kept(SimpleNamespace(**usual | named))  # type: ignore[arg-type]
    assert said in reason
    assert bool(said) == bool(reason)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ({"model": "/m", "model_weights": "", "revision": None}, "/m"),
        ({"model": "org/m", "model_weights": "", "revision": "v1"}, "org/m@v1"),
        ({"model": "/m", "model_weights": "/others", "revision": None}, "/others"),
        ({"model": "/tmp/copy", "model_weights": "s3://bucket/m", "revision": None}, "s3://bucket/m"),
    ],
)
def test_where_weights_come_from(model: dict[str, Any], name: str) -> None:
    config: Any = SimpleNamespace(
        model_config=SimpleNamespace(**model), speculative_config=None, load_config=LoadConfig()
    )
    assert name_weights(config) == (name,)
    towers = [SimpleNamespace(model_or_path="/towers", revision=revision) for revision in (None, "v2")]
    loaded: Any = SimpleNamespace(secondary_weights=towers)
    assert name_weights(config, loaded) == (name, "/towers", "/towers@v2")
    config.load_config = LoadConfig(load_format="sharded_state")
    assert name_weights(config, loaded) == (name,), "its folder has all"


@pytest.mark.parametrize(
    ("pooler", "is_supported", "layer", "said"),
    [
        (None, True, {"non_causal": False}, ""),
        (None, False, {}, ""),  # states alone, for which vLLM turns prefix caching off as it is new
        (object(), True, {}, ""),
        (object(), False, {}, "pooling needs"),
        (None, True, {"non_causal": True}, "attend to those after them"),
        (None, True, {"kv_cache_specs": {"a": object(), "b": SimpleNamespace(non_causal=True)}}, "attend to those"),
    ],
)
def test_whose_prompts_cannot_be_resumed(pooler: object, is_supported: bool, layer: dict[str, Any], said: str) -> None:
    model = SimpleNamespace(pooler_config=pooler, is_prefix_caching_supported=is_supported)
    caches = SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=SimpleNamespace(**layer))])
    reason = tell_why_not_resumed(model, caches)  # type: ignore[arg-type]
    assert said in reason
    assert bool(said) == bool(reason)


@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        ("auto", ""),
        ("bfloat16", ""),  # which vLLM's list for CPUs leaves out
        ("fp8", ""),
        ("int8_per_token_head", "CPU_ATTN writes beside its pages"),
        (None, ""),
    ],
)
def test_whose_pages_are_not_what_vllm_writes(dtype: str | None, said: str) -> None:
    layer = SimpleNamespace(kv_cache_dtype=dtype, get_attn_backend=lambda: CPUAttentionBackend)
    state = SimpleNamespace(get_attn_backend=lambda: CPUAttentionBackend)
    reason = tell_why_not_copied([state, layer])
    assert said in reason
    assert bool(said) == bool(reason)


def test_a_cache_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match=r"CrossAttentionSpec .*: serve the model without Octavo"):
        rule_of(CrossAttentionSpec(block_size=16, num_kv_heads=1, head_size=32, dtype=torch.float32))


def test_whose_answers_are_not_stored() -> None:
    def caches(**layer: Any) -> Any:
        return SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=SimpleNamespace(**layer))])

    assert not tell_why_prompts_only(caches(sliding_window=128))
    assert "attend to fewer" in tell_why_prompts_only(caches(rswa_window=128))


@pytest.mark.parametrize(("num_output_tokens", "num_blocks"), [(0, 3), (1, 3), (16, 3), (17, 4)])
def test_of_a_recorded_request_all_computed_blocks_are_named(
    num_output_tokens: int, num_blocks: int, tmp_path: Path
) -> None:
    """Those of the prompt, also if there is no answer, as of an embedding; and of the answer all but its last token."""
    (line,) = recorded(tmp_path / "trace.jsonl", num_output_tokens, RequestStatus.FINISHED_STOPPED)
    assert len(line["blocks"]) == num_blocks


@pytest.mark.parametrize(("num_output_tokens", "num_lines"), [(0, 0), (1, 1), (9, 1)])
def test_a_request_whose_client_leaves_is_recorded_once_its_prompt_is_computed(
    num_output_tokens: int, num_lines: int, tmp_path: Path
) -> None:
    assert len(recorded(tmp_path / "trace.jsonl", num_output_tokens, RequestStatus.FINISHED_ABORTED)) == num_lines


def recorded(path: Path, num_output_tokens: int, status: RequestStatus) -> list[Any]:
    """The lines of a request that ends."""
    init_none_hash(sha256)
    request = Request(
        request_id="r",
        prompt_token_ids=list(range(48)),
        sampling_params=SamplingParams(max_tokens=64) if num_output_tokens else None,
        pooling_params=None if num_output_tokens else PoolingParams(),
        block_hasher=get_request_block_hasher(16, sha256),
    )
    recorder, context = RecorderOfRequests(path, block_tokens=16, most_bytes=1 << 20), ReqContext(req_id="r")
    recorder.begin(context, sys._getframe())
    request.append_output_token_ids(list(range(num_output_tokens)))
    request.status = status
    recorder.end(context, "memory")
    recorder.close()
    _, *lines = map(json.loads, path.read_text().splitlines())
    return lines
