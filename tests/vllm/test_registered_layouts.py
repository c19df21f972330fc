"""What a real vLLM engine registers, seen as canonical caches: its own memory, block by block."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forked import call
from plugin_process import make_model

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(180)]

EXPECTED = {
    # One layer in each group, all over each other; pages of a window and of full attention are alike.
    "gemma3": {"tensors": 1, "refs": [1] * 6, "pages": [32768] * 6},
    "qwen3_next": {"tensors": 1, "refs": [1] * 4, "pages": [134144] * 3 + [262144]},
}


@pytest.mark.parametrize("family", EXPECTED)
def test_what_vllm_registers_is_canonical(family: str, tmp_path: Path) -> None:
    assert call(what_vllm_registers, make_model(family, tmp_path)) == EXPECTED[family]


def what_vllm_registers(model: str) -> dict[str, Any]:
    from plugin_serving import start
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    registered = []
    allocate = GPUModelRunner.initialize_kv_cache_tensors

    def capture(self, kv_cache_config, *args, **kwargs):
        kv_caches = allocate(self, kv_cache_config, *args, **kwargs)
        registered.append((kv_caches, kv_cache_config))
        return kv_caches

    GPUModelRunner.initialize_kv_cache_tensors = capture
    start(model, None, mamba_ssm_cache_dtype="float32")  # a processor with AVX-512 BF16 chooses it by itself
    kv_caches, config = registered[-1]
    caches = canonical(kv_caches, config)
    check_memory(kv_caches, config, caches)
    groups = range(len(caches.group_refs))
    return {
        "tensors": len(caches.tensors),
        "refs": [len(refs) for refs in caches.group_refs],
        "pages": [caches.page_size_bytes(group_idx) for group_idx in groups],
    }


def canonical(kv_caches, config):
    from octavo.transfer import CacheRegistration, RegisteredGroup, register_kv_caches

    groups = tuple(
        RegisteredGroup(
            layers={name: content_bytes(group.kv_cache_spec, name) for name in group.layer_names},
            num_blocks=config.num_blocks,
            block_size=group.kv_cache_spec.block_size,
        )
        for group in config.kv_cache_groups
    )
    return register_kv_caches(kv_caches, CacheRegistration(groups=groups, hash_block_size=config.hash_block_size))


def content_bytes(spec, layer: str) -> int:
    """Of one block of a layer, without vLLM's padding."""
    spec = getattr(spec, "kv_cache_specs", {}).get(layer, spec)
    return replace(spec, page_size_padded=None).page_size_bytes


def check_memory(kv_caches, config, caches) -> None:
    """Each side reads what the other wrote, in the first block, the last and one between."""
    import torch

    for group_idx, group in enumerate(config.kv_cache_groups):
        for row in (0, 5, config.num_blocks - 1):
            for layer in group.layer_names:
                cache = kv_caches[layer]
                assert isinstance(cache, torch.Tensor)
                assert cache.shape[0] == config.num_blocks
                cache[row].fill_(1)
            ours = [
                caches.tensors[ref.tensor_idx].tensor[row, ref.offset : ref.offset + ref.page_size_bytes]
                for ref in caches.group_refs[group_idx]
            ]
            ones = torch.ones((), dtype=cache.dtype).view(1).view(torch.int8)
            for part in ours:
                assert torch.equal(part, ones.repeat(len(part) // len(ones)))
                part.zero_()
            for layer in group.layer_names:
                assert not kv_caches[layer][row].any()
