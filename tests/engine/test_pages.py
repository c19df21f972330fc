"""The pool's bytes: what the manager asks to copy, and the views that share them."""

import torch

from octavo.blocks import Allocation, PageCopy, PageMove
from octavo.engine.cache import AttentionPages, DevicePages, StatePages
from octavo.planning import plan_kv_cache
from octavo.specs import CacheDType, FullAttentionSpec, MambaSpec, RequestLimits, SlidingWindowSpec

ATTENTION = FullAttentionSpec(block_size=4, num_kv_heads=2, head_size=8, head_size_v=6, dtype=CacheDType.FLOAT32)
WINDOW = SlidingWindowSpec(block_size=4, num_kv_heads=1, head_size=8, sliding_window=4, dtype=CacheDType.BFLOAT16)
STATE = MambaSpec(block_size=8, shapes=((6, 4), (3, 5, 5)), dtypes=(CacheDType.BFLOAT16, CacheDType.FLOAT32))
LAYERS = {"a": ATTENTION, "b": ATTENTION, "w": WINDOW, "s": STATE}


def make_pages():
    config = plan_kv_cache(LAYERS, memory_bytes=1 << 16, limits=RequestLimits(max_model_len=64, max_step_tokens=16))
    return DevicePages(config, torch.device("cpu"))


def group_of(pages, layer):
    return next(i for i, group in enumerate(pages.config.groups) if layer in group.layer_names)


def test_moves_come_before_copies_and_allocations_in_order():
    pages = make_pages()
    group_idx = group_of(pages, "a")
    page_class = pages.config.groups[group_idx].page_class
    rows = pages.group_view(group_idx)
    rows[3] = 7
    pages.execute(
        [
            Allocation(
                moves=(PageMove(page_class=page_class, source=3, destination=5),),
                copies=(PageCopy(group_idx=group_idx, source=5, destination=6),),
            ),
            Allocation(moves=(PageMove(page_class=page_class, source=6, destination=1),)),
        ]
    )
    assert [int(row.float().mean()) for row in rows[:7]] == [0, 7, 0, 7, 0, 7, 7]


def test_layers_of_a_page_do_not_overlap():
    pages = make_pages()
    group_idx = group_of(pages, "a")
    offsets = pages.config.groups[group_idx].layer_offsets
    first, second = (AttentionPages(pages, group_idx, offsets[name], ATTENTION) for name in "ab")
    row, slots = torch.tensor([2, 2, 4]), torch.tensor([1, 2, 0])
    keys, values = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 3, 6)
    first.write(row, slots, keys, values)
    second.write(row, slots, -keys, -values)
    for layer, sign in ((first, 1), (second, -1)):
        read_keys, read_values = layer.gather(torch.tensor([2, 4]), 1)
        assert torch.equal(read_keys[:, :, [1, 2, 4]], sign * keys)
        assert torch.equal(read_values[:, :, [1, 2, 4]], sign * values)
        assert not read_keys[:, :, [0, 3, 5, 6, 7]].any()


def test_states_are_views_of_the_pool():
    pages = make_pages()
    group_idx = group_of(pages, "s")
    tensors = StatePages(pages, group_idx, pages.config.groups[group_idx].layer_offsets["s"], STATE).tensors
    assert [(tensor.shape[1:], tensor.dtype) for tensor in tensors] == [
        ((6, 4), torch.bfloat16),
        ((3, 5, 5), torch.float32),
    ]
    for tensor in tensors:
        tensor[1] = 1
    assert pages.group_view(group_idx)[1].any()
    pages.clear(group_idx, [1])
    assert not pages.pool.any()
