"""Every layout that an engine may have, seen as canonical rows: the same memory, both ways, and nothing beside it."""

from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from octavo.errors import BlockSizeError, CacheLayoutError, SpecError
from octavo.planning import plan_kv_cache
from octavo.specs import CacheDType, FullAttentionSpec, MambaSpec, RequestLimits
from octavo.testing import MODEL_EXAMPLES
from octavo.transfer import (
    CacheRegistration,
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    RegisteredGroup,
    register_kv_caches,
    register_sheets,
)

N = 6
"""Blocks of most plans here."""


def group(num_blocks=N, block_dim=None, block_size=16, **layers):
    return RegisteredGroup(layers=layers, num_blocks=num_blocks, block_size=block_size, block_dim=block_dim)


def register(kv_caches, *groups):
    return register_kv_caches(kv_caches, CacheRegistration(groups=groups, hash_block_size=16))


def bytes_at(num_bytes, dtype=torch.int8):
    return torch.zeros(num_bytes, dtype=torch.int8).view(dtype)


def view(memory, shape, strides, offset=0):
    return torch.as_strided(memory, shape, strides, offset)


def canonical_block(caches, group_idx, row):
    """The parts of a block, in order, as views."""
    return [
        caches.tensors[ref.tensor_idx].tensor[row, ref.offset : ref.offset + ref.page_size_bytes]
        for ref in caches.group_refs[group_idx]
    ]


def assert_is_the_same_memory(caches: CanonicalKVCaches, group_idx: int, blocks: list[list[torch.Tensor]]) -> None:
    """`blocks[i]`: the engine's views of what block i consists of. What is written on one side is read on the other,
    and no block holds a byte of another's."""
    for entry in caches.tensors:
        assert entry.tensor.dtype == torch.int8
    assert caches.num_blocks(group_idx) == len(blocks)
    size = sum(part.numel() * part.element_size() for part in blocks[0])
    assert caches.page_size_bytes(group_idx) == size
    starts = [part.data_ptr() for part in blocks[0]]
    assert min(part.data_ptr() for part in canonical_block(caches, group_idx, 0)) == min(starts)
    values = [row % 100 + 1 for row in range(len(blocks))]
    for value, parts in zip(values, blocks, strict=True):  # the engine writes
        for part in parts:
            fill_bytes(part, value)
    for row, value in enumerate(values):
        assert all((part == value).all() for part in canonical_block(caches, group_idx, row))
    for row, value in enumerate(values):  # the worker writes
        for part in canonical_block(caches, group_idx, row):
            part.fill_(-value)
    for value, parts in zip(values, blocks, strict=True):
        assert all((part.contiguous().view(-1).view(torch.int8) == -value).all() for part in parts)


def fill_bytes(part: torch.Tensor, value: int) -> None:
    content = torch.full((part.numel() * part.element_size(),), value, dtype=torch.int8)
    part.copy_(content.view(part.dtype).view(part.shape))


def test_block_first():
    cache = torch.zeros(N, 2, 16, 4, dtype=torch.bfloat16)
    caches = register({"a": cache}, group(a=256))
    assert caches.group_refs == ((CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=256),),)
    assert caches.tensors[0].tensor.data_ptr() == cache.data_ptr()
    assert_is_the_same_memory(caches, 0, [[cache[i]] for i in range(N)])


def test_keys_and_values_split():
    cache = torch.zeros(2, N, 16, 4, dtype=torch.bfloat16)
    caches = register({"a": cache}, group(a=256))
    assert [entry.page_size_bytes for entry in caches.tensors] == [128, 128]
    assert_is_the_same_memory(caches, 0, [[cache[0, i], cache[1, i]] for i in range(N)])


def test_keys_and_values_split_but_seen_block_first():
    cache = torch.zeros(2, N, 16, 4, dtype=torch.bfloat16).transpose(0, 1)
    caches = register({"a": cache}, group(a=256))
    assert len(caches.group_refs[0]) == 2
    assert_is_the_same_memory(caches, 0, [[cache[i]] for i in range(N)])


@pytest.mark.parametrize("num_blocks", [1, 2])
def test_two_blocks_of_keys_and_values_are_refused_until_somebody_says_which(num_blocks):
    cache = torch.zeros(2, num_blocks, 16, 4)
    plan = group(num_blocks, a=512)
    if num_blocks == 1:  # one block is all of it, in whatever order
        assert_is_the_same_memory(register({"a": cache}, plan), 0, [[cache]])
        return
    with pytest.raises(CacheLayoutError, match="dimension 0 or dimension 1 could count the blocks"):
        register({"a": cache}, plan)
    split = register({"a": cache}, group(num_blocks, block_dim=1, a=512))
    assert_is_the_same_memory(split, 0, [[cache[:, i]] for i in range(2)])
    first = register({"a": cache}, group(num_blocks, block_dim=0, a=512))
    assert_is_the_same_memory(first, 0, [[cache[i]] for i in range(2)])


def test_any_dimension_that_is_named():
    cache = torch.zeros(3, N, 8, dtype=torch.float32)
    caches = register({"a": cache}, group(block_dim=1, a=96))
    assert_is_the_same_memory(caches, 0, [[cache[:, i]] for i in range(N)])


def test_heads_before_tokens_in_a_permuted_view():
    cache = torch.zeros(N, 16, 4, 8).permute(0, 2, 1, 3)
    caches = register({"a": cache}, group(a=2048))
    assert caches.group_refs == ((CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=2048),),)
    assert_is_the_same_memory(caches, 0, [[cache[i]] for i in range(N)])


def test_latent():
    cache = torch.zeros(N, 16, 36, dtype=torch.float16)
    assert_is_the_same_memory(register({"a": cache}, group(a=1152)), 0, [[cache[i]] for i in range(N)])


def test_blocks_that_kernels_cut():
    cache = torch.zeros(N * 4, 2, 16, 8, dtype=torch.bfloat16)
    caches = register({"a": cache}, group(a=4 * 512))
    assert_is_the_same_memory(caches, 0, [[cache[4 * i : 4 * i + 4]] for i in range(N)])
    split = torch.zeros(2, N * 4, 16, 8, dtype=torch.bfloat16)
    caches = register({"a": split}, group(a=4 * 512))
    assert_is_the_same_memory(caches, 0, [[split[:, 4 * i : 4 * i + 4]] for i in range(N)])


def state_of(memory, padded_bytes, num_blocks=N):
    """conv bf16 (3, 8), then ssm float32 (2, 5): 48 + 40 bytes of each page."""
    conv = view(memory.view(torch.bfloat16), (num_blocks, 3, 8), (padded_bytes // 2, 8, 1))
    ssm = view(memory.view(torch.float32), (num_blocks, 2, 5), (padded_bytes // 4, 5, 1), 12)
    return [conv, ssm]


def test_state_in_several_tensors_of_one_padded_page():
    memory = bytes_at(N * 128)
    state = state_of(memory, 128)
    caches = register({"s": state}, group(s=88))
    assert caches.group_refs == ((CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=88),),)
    assert caches.tensors[0].tensor.stride() == (128, 1)
    assert_is_the_same_memory(caches, 0, [[part[i] for part in state] for i in range(N)])
    assert (memory.view(N, 128)[:, 88:] == 0).all()
    whole = view(memory, (N, 1, 1, 88), (128, 88, 88, 1))
    assert register({"s": whole}, group(s=88)).group_refs == caches.group_refs


def test_state_in_tensors_of_their_own_and_with_a_gap():
    apart = [torch.zeros(N, 3, 8, dtype=torch.bfloat16), torch.zeros(N, 2, 5)]
    caches = register({"s": apart}, group(s=88))
    assert [ref.tensor_idx for ref in caches.group_refs[0]] == [0, 1]
    assert_is_the_same_memory(caches, 0, [[part[i] for part in apart] for i in range(N)])

    memory = bytes_at(N * 128)
    conv, ssm = state_of(memory, 128)
    ssm = view(memory.view(torch.float32), ssm.shape, ssm.stride(), 16)  # at 64, not at 48
    caches = register({"s": [conv, ssm]}, group(s=104))
    assert [(ref.offset, ref.page_size_bytes) for ref in caches.group_refs[0]] == [(0, 48), (64, 40)]
    with pytest.raises(CacheLayoutError, match=r"layer 's', 2 tensors .* holds 88 bytes, the plan says 100"):
        register({"s": [conv, ssm]}, group(s=100))


def test_layers_packed_within_a_block():
    memory = bytes_at(N * 96)
    layers = {name: view(memory, (N, 32), (96, 1), 32 * i) for i, name in enumerate("abc")}
    caches = register(layers, group(c=32, a=32, b=32))
    assert caches.group_refs == ((CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=96),),)
    assert_is_the_same_memory(caches, 0, [[layer[i] for layer in layers.values()] for i in range(N)])


def test_what_lies_between_packed_layers_is_not_moved():
    memory = bytes_at(N * 96)
    layers = {name: view(memory, (N, 32), (96, 1), offset) for name, offset in {"a": 0, "b": 64}.items()}
    caches = register(layers, group(a=32, b=32))
    assert [(ref.offset, ref.page_size_bytes) for ref in caches.group_refs[0]] == [(0, 32), (64, 32)]
    assert_is_the_same_memory(caches, 0, [[layer[i] for layer in layers.values()] for i in range(N)])
    assert (memory.view(N, 96)[:, 32:64] == 0).all()


def test_layers_one_after_the_other_in_one_allocation():
    memory = bytes_at(3 * N * 64, torch.float32)
    layers = {name: memory[i * N * 16 : (i + 1) * N * 16].view(N, 4, 4) for i, name in enumerate("abc")}
    caches = register(layers, group(a=64, b=64, c=64))
    assert len(caches.tensors) == 3
    assert_is_the_same_memory(caches, 0, [[layer[i] for layer in layers.values()] for i in range(N)])


def test_layers_of_one_group_with_pages_of_their_own_size():
    """Shapes disagree about rows; the plan says how many blocks there are."""
    layers = {
        "latent": torch.zeros(N, 16, 36, dtype=torch.bfloat16),
        "indexer": torch.zeros(N * 16, 33, dtype=torch.float32),
        "compressed": torch.zeros(N + 3, 4, 36, dtype=torch.bfloat16),
    }
    caches = register(layers, group(latent=1152, indexer=2112, compressed=288))
    blocks = [[layers["latent"][i], layers["indexer"][16 * i : 16 * i + 16], layers["compressed"][i]] for i in range(N)]
    assert_is_the_same_memory(caches, 0, blocks)


def test_groups_that_lie_over_each_other_share_a_tensor():
    memory = bytes_at(N * 128)
    window = view(memory.view(torch.bfloat16), (N, 2, 32), (64, 32, 1))
    state = state_of(memory, 128)
    caches = register({"w": window, "s": state}, group(s=88), group(w=128))
    assert len(caches.tensors) == 1
    assert caches.tensors[0].page_size_bytes == 128
    assert_is_the_same_memory(caches, 0, [[part[i] for part in state] for i in range(N)])
    assert_is_the_same_memory(caches, 1, [[window[i]] for i in range(N)])


def test_layers_that_see_one_cache_move_it_once():
    cache = torch.zeros(N, 2, 16, 4)
    caches = register({"a": cache, "b": cache, "unplanned": cache}, group(a=512, b=512))
    assert_is_the_same_memory(caches, 0, [[cache[i]] for i in range(N)])


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.uint8, torch.float64, torch.bool])
def test_any_dtype_becomes_int8(dtype):
    cache = bytes_at(N * 64, torch.uint8 if dtype is torch.bool else dtype)
    cache = (cache.bool() if dtype is torch.bool else cache).view(N, -1)
    caches = register({"a": cache}, group(a=64))
    assert caches.tensors[0].tensor.dtype == torch.int8
    caches.tensors[0].tensor[3].fill_(1)
    assert cache.view(torch.uint8)[:, :].sum(dim=1).tolist() == [0, 0, 0, 64, 0, 0]


@given(data=st.data())
def test_any_permutation_and_padding_of_any_block_is_the_same_memory(data):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    num_blocks = data.draw(st.integers(5, 9))
    dtype = data.draw(st.sampled_from([torch.int8, torch.bfloat16, torch.float32]))
    row = prod(sizes)
    stride = row + data.draw(st.integers(0, 5))
    memory = torch.zeros(num_blocks * stride + 3, dtype=dtype)
    dense = torch.zeros(sizes).stride()
    cache = view(memory, (num_blocks, *sizes), (stride, *dense), data.draw(st.integers(0, 3)))
    order = data.draw(st.permutations(range(1, len(sizes) + 1)))
    cache = cache.permute(0, *order)
    caches = register({"a": cache}, group(num_blocks, block_dim=0, a=row * dtype.itemsize))
    assert len(caches.group_refs[0]) == 1
    assert_is_the_same_memory(caches, 0, [[cache[i]] for i in range(num_blocks)])


class TestRefusals:
    def refuse(self, cache, match, **plan):
        with pytest.raises(CacheLayoutError, match=match) as caught:
            register({"a": cache}, group(**plan))
        if isinstance(cache, torch.Tensor):
            assert f"layer 'a', shape {tuple(cache.shape)}, strides" in str(caught.value)

    def test_a_tensor_with_too_few_blocks(self):
        self.refuse(torch.zeros(5, 16, 4), "dimension 0 holds 5 blocks of 256 bytes, the plan has 6", a=256)
        self.refuse(torch.zeros(2, 5, 16, 4), "dimension 1 holds 5 blocks of 512 bytes, the plan has 6", a=512)
        self.refuse(torch.zeros(0, 16, 4), "it is empty", a=256)

    def test_a_storage_with_too_few_blocks(self):
        cache = torch.zeros(N, 64, dtype=torch.int8)
        cache.untyped_storage().resize_(5 * 64 + 63)
        self.refuse(cache, "its storage of 383 bytes holds 5 blocks, the plan has 6. Allocate", a=64)

    def test_padding_that_cut_blocks_would_hide(self):
        self.refuse(torch.zeros(N * 100, dtype=torch.int8), "holds 9.375 blocks of 64 bytes, the plan has 6", a=64)

    def test_other_bytes_than_the_plan_says(self):
        self.refuse(torch.zeros(N, 16, 4), "6 rows of 256 bytes, of which no whole number makes the 300 bytes", a=300)
        self.refuse(torch.zeros(()), "it has no dimension 0 to count blocks", a=4)

    def test_a_block_in_too_many_pieces(self):
        self.refuse(torch.zeros(200, N, 4).transpose(0, 1), "lies in 200 runs of 16 bytes; at most 64", a=3200)

    def test_elements_that_share_memory(self):
        self.refuse(torch.zeros(N, 1, 4).expand(N, 16, 4), "its elements share memory", a=256)
        self.refuse(torch.zeros(1, 16, 4).expand(N, 16, 4), "its elements share memory", a=256)
        self.refuse(view(torch.zeros(100), (N, 8), (4, 1)), "its elements share memory", a=32)

    def test_no_memory_and_no_tensors(self):
        self.refuse(torch.zeros(N, 64, device="meta"), "it has no strided memory", a=256)
        self.refuse(torch.zeros(N, 64).to_sparse(), "it has no strided memory", a=256)
        self.refuse([], "layer 'a': a cache is a tensor or a list of some", a=256)
        self.refuse([np.zeros(3)], "layer 'a': a cache is a tensor or a list of some", a=256)
        self.refuse(torch.zeros(N, 64), "it has no dimension 2", a=256, block_dim=2)

    def test_a_layer_that_was_not_registered(self):
        with pytest.raises(CacheLayoutError, match="layer 'b' is in the plan, but no cache was registered"):
            register({"a": torch.zeros(N, 64)}, group(b=256))

    def test_layers_of_a_group_that_overlap(self):
        memory = bytes_at(N * 96)
        layers = {"a": view(memory, (N, 32), (96, 1)), "b": view(memory, (N, 32), (96, 1), 16)}
        with pytest.raises(CacheLayoutError, match="names bytes of tensor 0 twice: 32 at 0 and 32 at 16"):
            register(layers, group(a=32, b=32))

    @pytest.mark.parametrize(("stride", "offset"), [(64, 16), (192, 0), (192, 80)])
    def test_layers_of_a_group_that_overlap_at_another_stride(self, stride, offset):
        memory = bytes_at(N * 400)
        layers = {"a": view(memory, (N, 32), (96, 1)), "b": view(memory, (N, 32), (stride, 1), offset)}
        with pytest.raises(CacheLayoutError, match="blocks in tensors 0 and 1 overlap"):
            register(layers, group(a=32, b=32))

    def test_layers_of_a_group_that_alternate_at_another_stride(self):
        memory = bytes_at(N * 400)
        layers = {"a": view(memory, (N, 32), (96, 1)), "b": view(memory, (N, 32), (192, 1), 32)}
        assert register(layers, group(a=32, b=32)).page_size_bytes(0) == 64

    def test_a_layer_without_bytes(self):
        with pytest.raises(CacheLayoutError, match="0 bytes"):
            register({"a": torch.zeros(N, 64)}, group(a=0))

    def test_several_devices(self):
        if not torch.cuda.is_available():
            pytest.skip("no second device")
        layers = {device: torch.zeros(N, 64, device=device) for device in ("cpu", "cuda")}
        with pytest.raises(CacheLayoutError, match="several devices: cpu, cuda"):
            register(layers, group(cpu=256, cuda=256))

    def test_blocks_that_hashes_cannot_name(self):
        groups = (group(block_size=32), group(block_size=24))
        with pytest.raises(BlockSizeError, match=r"= 24 of group 1 is not a multiple of hash_block_size = 16.*; 8 or"):
            CacheRegistration(groups=groups, hash_block_size=16)
        with pytest.raises(SpecError, match="num_blocks"):
            group(num_blocks=0)


class TestSheets:
    @pytest.mark.parametrize("model", MODEL_EXAMPLES)
    def test_each_layer_lies_where_the_plan_puts_it(self, model):
        plan = MODEL_EXAMPLES[model].plan(0.5)
        pool = torch.zeros(plan.num_sheets, plan.sheet_bytes, dtype=torch.int8)
        caches = register_sheets(pool, plan)
        assert len(caches.tensors) == len(plan.page_classes)
        for group_idx, planned in enumerate(plan.groups):
            pages = plan.class_of(planned)
            if pages is None:
                assert caches.group_refs[group_idx] == ()
                continue
            assert len(caches.group_refs[group_idx]) == 1
            assert caches.page_size_bytes(group_idx) == planned.page_bytes
            rows = pool.view(-1, pages.page_bytes)
            assert caches.num_blocks(group_idx) == pages.num_blocks
            blocks = [[rows[i, : planned.page_bytes]] for i in range(pages.num_blocks)]
            assert_is_the_same_memory(caches, group_idx, blocks)

    @pytest.mark.parametrize("model", MODEL_EXAMPLES)
    def test_layer_by_layer_is_the_same_without_what_aligns_layers(self, model):
        """An engine that registers its layers' views moves the same content."""
        plan = MODEL_EXAMPLES[model].plan(0.5)
        pool = torch.zeros(plan.num_sheets * plan.sheet_bytes, dtype=torch.int8)
        views = {
            name: pool.view(-1, plan.class_of(planned).page_bytes)[
                :, offset : offset + planned.spec.specs[name].unpadded_page_size_bytes
            ]
            for planned in plan.groups
            if planned.page_class is not None
            for name, offset in planned.layer_offsets.items()
        }
        caches = register_kv_caches(views, CacheRegistration.of_plan(plan))
        for group_idx, planned in enumerate(plan.groups):
            if planned.page_class is not None:
                blocks = [[views[name][i] for name in planned.layer_names] for i in range(caches.num_blocks(group_idx))]
                assert_is_the_same_memory(caches, group_idx, blocks)

    def test_a_pool_that_cannot_hold_the_plan(self):
        plan = MODEL_EXAMPLES["full only"].plan(0.5)
        needed = plan.num_sheets * plan.sheet_bytes
        with pytest.raises(CacheLayoutError, match=f"it holds {needed - 1} of {needed}"):
            register_sheets(torch.zeros(needed - 1, dtype=torch.int8), plan)
        with pytest.raises(CacheLayoutError, match="is not one piece"):
            register_sheets(torch.zeros(needed, 2, dtype=torch.int8)[:, 0], plan)


def test_a_plan_of_state_and_attention_registers_the_tensors_of_its_engine():
    """Views with shapes and types, as an engine makes them from the plan."""
    state = MambaSpec(block_size=16, shapes=((3, 5), (2, 4)), dtypes=(CacheDType.BFLOAT16, CacheDType.FLOAT32))
    layers = {"s": state, "f": FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=4)}
    plan = plan_kv_cache(layers, memory_bytes=1 << 16, limits=RequestLimits(max_model_len=64), alignment_bytes=16)
    pool = torch.zeros(plan.num_sheets * plan.sheet_bytes, dtype=torch.int8)
    group_of = {name: planned for planned in plan.groups for name in planned.layer_names}
    stride = {name: plan.class_of(planned).page_bytes for name, planned in group_of.items()}
    blocks = {name: plan.class_of(planned).num_blocks for name, planned in group_of.items()}
    halves, words = pool.view(torch.bfloat16), pool.view(torch.float32)
    conv = view(halves, (blocks["s"], 3, 5), (stride["s"] // 2, 5, 1))
    ssm = view(words, (blocks["s"], 2, 4), (stride["s"] // 4, 4, 1), state.tensor_offsets[1] // 4)
    attention = view(halves, (blocks["f"], 2, 16, 2, 4), (stride["f"] // 2, 128, 8, 4, 1))
    caches = register_kv_caches({"s": [conv, ssm], "f": attention}, CacheRegistration.of_plan(plan))
    names = [planned.layer_names[0] for planned in plan.groups]
    assert_is_the_same_memory(caches, names.index("f"), [[attention[i]] for i in range(blocks["f"])])
    assert_is_the_same_memory(caches, names.index("s"), [[conv[i], ssm[i]] for i in range(blocks["s"])])
