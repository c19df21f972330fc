"""What vLLM 0.32 registers for six families of models, rebuilt: shapes, strides, offsets and one backing allocation."""

import pytest
import torch

from octavo.transfer import CacheRegistration, RegisteredGroup, register_kv_caches


def registration(block_size, num_blocks, *groups):
    return CacheRegistration(
        groups=tuple(RegisteredGroup(layers=g, num_blocks=num_blocks, block_size=block_size) for g in groups),
        hash_block_size=block_size,
    )


def attention(memory, num_blocks, shape, page_bytes, offset=0):
    rest = torch.empty(shape, device="meta").stride()
    return torch.as_strided(memory.view(torch.bfloat16), (num_blocks, *shape), (page_bytes // 2, *rest), offset // 2)


def allocation(num_bytes):
    return torch.zeros(num_bytes, dtype=torch.int8)


def mark_and_find(caches, group_idx, cache, row):
    """The engine writes a block; the canonical block has those bytes, and no other block changed."""
    before = [entry.tensor.clone() for entry in caches.tensors]
    cache[row].fill_(1.5)
    changed = {
        (idx, int(changed_row))
        for idx, entry in enumerate(caches.tensors)
        for changed_row in (entry.tensor != before[idx]).any(dim=1).nonzero().flatten()
    }
    cache[row].fill_(0)
    assert {changed_row for _, changed_row in changed} == {row}
    assert {idx for idx, _ in changed} <= {ref.tensor_idx for ref in caches.group_refs[group_idx]}


@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_full_attention(family):
    memory = allocation(4 * 512 * 32768)
    layers = {f"l{i}": attention(memory, 512, (2, 128, 64), 32768, i * 512 * 32768) for i in range(4)}
    assert layers["l0"].stride() == (16384, 8192, 64, 1)
    caches = register_kv_caches(layers, registration(128, 512, dict.fromkeys(layers, 32768)))
    assert [entry.tensor.data_ptr() for entry in caches.tensors] == [cache.data_ptr() for cache in layers.values()]
    assert caches.page_size_bytes(0) == 4 * 32768
    mark_and_find(caches, 0, layers["l2"], 511)


def test_gemma3():
    memory = allocation(2048 * 32768)
    layers = {f"l{i}": attention(memory, 2048, (2, 128, 64), 32768) for i in range(6)}
    caches = register_kv_caches(layers, registration(128, 2048, *({name: 32768} for name in layers)))
    assert len(caches.tensors) == 1
    assert caches.tensors[0].tensor.data_ptr() == memory.data_ptr()
    assert len(set(caches.group_refs)) == 1
    mark_and_find(caches, 5, layers["l5"], 2047)


def test_gpt_oss():
    memory = allocation(2 * 1024 * 32768)
    offsets = {"l0": 0, "l2": 1024 * 32768, "l1": 0, "l3": 1024 * 32768}
    layers = {name: attention(memory, 1024, (2, 128, 64), 32768, offset) for name, offset in offsets.items()}
    caches = register_kv_caches(layers, registration(128, 1024, {"l0": 32768, "l2": 32768}, {"l1": 32768, "l3": 32768}))
    assert len(caches.tensors) == 2
    assert caches.group_refs[0] == caches.group_refs[1]
    mark_and_find(caches, 1, layers["l3"], 1023)


@pytest.mark.parametrize("family", ["qwen3_next", "qwen3_5"])
@pytest.mark.parametrize("form", ["a list of tensors", "one tensor"])
def test_state_and_attention(family, form):
    memory = allocation(256 * 262144)
    conv = torch.as_strided(memory.view(torch.bfloat16), (256, 3, 512), (131072, 512, 1))
    ssm = torch.as_strided(memory.view(torch.float32), (256, 2, 128, 128), (65536, 16384, 128, 1), 768)
    whole = torch.as_strided(memory, (256, 1, 1, 134144), (262144, 134144, 134144, 1))
    state = [conv, ssm] if form == "a list of tensors" else whole
    layers = {"s0": state, "s1": state, "s2": state, "f": attention(memory, 256, (4, 128, 256), 262144)}
    assert layers["f"].stride() == (131072, 32768, 256, 1)
    groups = ({"s0": 134144}, {"s1": 134144}, {"s2": 134144}, {"f": 262144})
    caches = register_kv_caches(layers, registration(128, 256, *groups))
    assert len(caches.tensors) == 1
    assert [caches.page_size_bytes(i) for i in range(4)] == [134144, 134144, 134144, 262144]
    assert all(len(refs) == 1 for refs in caches.group_refs)
    mark_and_find(caches, 0, ssm, 255)
    mark_and_find(caches, 3, layers["f"], 1)


def test_deepseek_v2():
    memory = allocation(4 * 910 * 18432)
    layers = {f"l{i}": attention(memory, 910, (16, 576), 18432, i * 910 * 18432) for i in range(4)}
    caches = register_kv_caches(layers, registration(16, 910, dict.fromkeys(layers, 18432)))
    assert len(caches.tensors) == 4
    assert caches.num_blocks(0) == 910
    mark_and_find(caches, 0, layers["l3"], 909)
