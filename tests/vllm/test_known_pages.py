"""Which pages the adapter knows, beside vLLM's own mapping of them, and which it calls opaque."""

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from octavo.transfer import CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor, PageShare, Run, share_page

with warnings.catch_warnings():  # torch's, while vLLM is imported
    warnings.simplefilter("ignore")
    pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import get_offloading_group_ids
    from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
    from vllm.v1.kv_cache_interface import (
        CircularBufferSpec,
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        KVCacheSpec,
        KVQuantMode,
        MambaSpec,
        MLAAttentionSpec,
    )

    from octavo.vllm_plugin.adapter import known_pages
    from octavo.vllm_plugin.adapter.known_pages import KnownPage

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

TOKENS, HEADS, SIZE, BLOCKS = 16, 4, 32, 3


def read(
    monkeypatch: pytest.MonkeyPatch, spec: KVCacheSpec, rank: int = 0, num_ranks: int = 1, **known: Any
) -> KnownPage | str:
    """What is known of the page of one layer."""
    tensor = known.get("tensor")
    layer = SimpleNamespace(
        kv_cache=tensor, get_attn_backend=lambda: SimpleNamespace(get_name=lambda: known.get("backend", "FLASH_ATTN"))
    )
    monkeypatch.setattr(known_pages, "get_layers_from_vllm_config", lambda *_: {"layer": layer})
    parallel = SimpleNamespace(rank=rank, world_size=num_ranks, tp_size=known.get("tp_size", num_ranks), dcp_size=1)
    config = SimpleNamespace(parallel=parallel, groups=[SimpleNamespace(group_id=0, layer_names=("layer",))])
    text = {"num_key_value_heads": HEADS} | known.get("text", {})
    model = SimpleNamespace(
        hf_text_config=SimpleNamespace(to_dict=lambda: text), get_total_num_kv_heads=lambda: text["num_key_value_heads"]
    )
    vllm_config = SimpleNamespace(model_config=model, speculative_config=known.get("draft"))
    kv_cache_config = SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec)])
    page_bytes = getattr(spec, "real_page_size_bytes", spec.page_size_bytes)
    rows = CanonicalKVCacheTensor(tensor=torch.zeros((2, page_bytes), dtype=torch.int8), page_size_bytes=page_bytes)
    ref = CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=page_bytes)
    caches = CanonicalKVCaches(tensors=(rows,), group_refs=((ref,),))
    (page,) = known_pages.know_pages(config, vllm_config, kv_cache_config, caches)  # type: ignore[arg-type]
    return page


def attention(num_ranks: int, *, heads_first: bool, **changes: Any) -> tuple[FullAttentionSpec, torch.Tensor]:
    heads, cell = max(1, HEADS // num_ranks), 2 * SIZE
    spec = FullAttentionSpec(block_size=TOKENS, num_kv_heads=heads, head_size=SIZE, dtype=torch.bfloat16, **changes)
    strides = (TOKENS * cell, cell) if heads_first else (cell, heads * cell)
    memory = torch.zeros(BLOCKS * heads * TOKENS * cell, dtype=torch.bfloat16)
    return spec, memory.as_strided((BLOCKS, heads, TOKENS, cell), (heads * TOKENS * cell, *strides, 1))


def bytes_of(runs: Any, start: str, stride: str, size: str, times: str) -> list[int]:
    return np.concatenate(
        [
            getattr(run, start)
            + getattr(run, stride) * np.arange(getattr(run, times))[:, None]
            + np.arange(getattr(run, size))
            for run in runs
        ],
        axis=None,
    ).tolist()


@pytest.mark.parametrize("heads_first", [True, False])
@pytest.mark.parametrize("num_ranks", [1, 2, 4, 8])
def test_shares_are_vllms(monkeypatch: pytest.MonkeyPatch, num_ranks: int, heads_first: bool) -> None:
    mapping = pytest.importorskip("vllm.distributed.kv_transfer.kv_connector.v1.offloading.canonical_mapping")
    spec, tensor = attention(num_ranks, heads_first=heads_first)
    alone = read(
        monkeypatch, *[attention(1, heads_first=heads_first)[0]], tensor=attention(1, heads_first=heads_first)[1]
    )
    assert isinstance(alone, KnownPage)
    for rank in range(num_ranks):
        context = mapping._RankContext(num_ranks, 1, 1, 1, HEADS, rank)
        theirs = mapping._layer_mapping(spec, tensor, BLOCKS, context)
        ours = read(monkeypatch, spec, rank, num_ranks, tensor=tensor)
        assert ours == alone
        share = share_page(alone.page, rank, num_ranks)
        assert bytes_of(share.loads, "whole_start", "whole_stride", "num_bytes", "times") == bytes_of(
            theirs.runs, "canonical_offset", "canonical_stride", "fragment_size", "num_fragments"
        )
        assert share.whole_bytes == theirs.canonical_page_size_bytes
        assert bool(share.stores) == theirs.is_writer(0)


def test_latents_are_the_same_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = MLAAttentionSpec(block_size=TOKENS, num_kv_heads=1, head_size=576, dtype=torch.bfloat16)
    alone, third = read(monkeypatch, spec), read(monkeypatch, spec, 2, 4)
    assert isinstance(alone, KnownPage)
    assert alone == third
    run = Run(0, 0, TOKENS * 1152)
    assert share_page(alone.page, 2, 4) == PageShare(
        page_bytes=run.num_bytes, whole_bytes=run.num_bytes, loads=(run,), stores=()
    )


@pytest.mark.every_vllm
def test_circular_buffers_are_offered_by_no_vllm() -> None:
    """So it does not matter how ranks share them."""
    ring = CircularBufferSpec(block_size=8, num_kv_heads=1, head_size=SIZE, head_size_v=0, dtype=torch.bfloat16)
    specs = [ring, attention(1, heads_first=True)[0]]
    groups = [KVCacheGroupSpec(layer_names=[str(number)], kv_cache_spec=spec) for number, spec in enumerate(specs)]
    assert get_offloading_group_ids(KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=groups)) == (
        1,
    )


def state(num_ranks: int, num_groups: int, kernel: str = "MAMBA2") -> MambaSpec:
    heads, groups = 8 // num_ranks, max(1, num_groups // num_ranks)
    shapes = ((3, heads * 16 + 2 * groups * 4), (heads, 16, 4))
    dtypes = (torch.bfloat16, torch.float32)
    return MambaSpec(block_size=64, shapes=shapes, dtypes=dtypes, mamba_type=MambaAttentionBackendEnum[kernel])


@pytest.mark.parametrize("num_groups", [1, 4])
def test_states_by_heads_and_groups(monkeypatch: pytest.MonkeyPatch, num_groups: int) -> None:
    alone = read(monkeypatch, state(1, num_groups))
    ranks = [read(monkeypatch, state(4, num_groups), rank, 4, text={"n_groups": num_groups}) for rank in range(4)]
    assert isinstance(alone, KnownPage)
    assert ranks == [alone] * 4
    queries_first = read(monkeypatch, state(1, num_groups, "GDN_ATTN"))
    assert isinstance(queries_first, KnownPage)
    assert queries_first.digest != alone.digest


def test_what_is_opaque(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, tensor = attention(2, heads_first=True)
    as_usual = {"spec": spec, "rank": 1, "num_ranks": 2, "tensor": tensor}
    quantised = attention(2, heads_first=True, kv_quant_mode=KVQuantMode.FP8_PER_TENSOR)[0]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"tp_size": 1}, "pipeline or context parallelism"),
        ({"draft": SimpleNamespace(method="eagle")}, "a draft model"),
        ({"backend": "ROCM_AITER_FA"}, "a format of its own (ROCM_AITER_FA, NONE)"),
        ({"spec": quantised}, "a format of its own (FLASH_ATTN, FP8_PER_TENSOR)"),
        ({"tensor": tensor.flatten(2)}, "has caches of shape"),
        ({"tensor": tensor.as_strided(tensor.shape, (1, 5, 7, 1))}, "has heads and tokens (5, 7) elements apart"),
        ({"text": {"num_global_key_value_heads": 2}}, "different numbers of KV heads"),
        ({"text": {"num_key_value_heads": 8}}, "has 2 of the model's 8 KV heads"),
        ({"spec": state(2, 4)}, "does not say how many groups"),
        ({"spec": state(2, 4), "text": {"n_groups": 1}}, "are not made of 1 groups"),
        ({"spec": state(2, 4, "LINEAR")}, "states of LINEAR are not known"),
    ]
    assert isinstance(read(monkeypatch, **as_usual), KnownPage)
    assert isinstance(read(monkeypatch, **as_usual, draft=SimpleNamespace(method="ngram")), KnownPage)
    for changes, said in cases:
        reason = read(monkeypatch, **as_usual | changes)
        assert isinstance(reason, str), changes
        assert said in reason
