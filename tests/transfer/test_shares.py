"""What some ranks write, any other number of ranks reads: equal bytes, each written once."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings, strategies as st

from octavo.chunks import ChunkCopy
from octavo.errors import CacheLayoutError, ModelConfigError
from octavo.ids import NO_ROW, GroupIdx, Row, Slot
from octavo.planning.models import read_model
from octavo.specs import AttentionSpec, CircularBufferSpec, KVCacheSpec, MambaSpec, MLAAttentionSpec
from octavo.transfer import (
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    CanonicalKVCacheTensor,
    CpuWorker,
    Field,
    OffloadingWorker,
    Page,
    PageShare,
    Rows,
    Run,
    StagedWorker,
    attention_page,
    replicated_page,
    share_beside,
    share_page,
    state_page,
)
from rigs.host_lane import HostLane

Bytes = npt.NDArray[np.uint8]

FOLDER = Path(__file__).parents[2] / "examples" / "models"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.json"))
ONE_GROUP = ("bamba-9b", "granite-4.0-h-small", "falcon-h1-7b", "mamba2-2.7b")
QUERIES_FIRST = ("qwen3-next-80b", "qwen3.5-27b")


@cache
def read_specs(name: str, num_ranks: int) -> list[tuple[KVCacheSpec, KVCacheSpec]]:
    """Of each kind of layer: a rank's spec, and that of one rank alone. None if the model cannot be split so."""
    whole = read_model(FOLDER / f"{name}.json").layers
    try:
        layers = read_model(FOLDER / f"{name}.json", tensor_parallel_size=num_ranks).layers
    except ModelConfigError:
        return []
    return list(dict.fromkeys((layers[layer], whole[layer]) for layer in layers))


def page_of(spec: KVCacheSpec, whole: KVCacheSpec, name: str, num_ranks: int, *, heads_first: bool) -> Page:
    if isinstance(spec, MLAAttentionSpec | CircularBufferSpec) or (isinstance(spec, MambaSpec) and spec.is_replicated):
        return replicated_page(spec.unpadded_page_size_bytes)
    if isinstance(spec, MambaSpec):
        return state_page(
            spec.shapes if not heads_first else [spec.shapes[0][::-1], *spec.shapes[1:]],
            [dtype.array_bytes(1) for dtype in spec.dtypes],
            num_ranks=num_ranks,
            has_one_group=name in ONE_GROUP,
            values_first=name not in QUERIES_FIRST,
            steps_first=not heads_first,
        )
    assert isinstance(whole, AttentionSpec)
    return attention_page(
        num_heads=whole.num_kv_heads,
        head_bytes=whole.unpadded_page_size_bytes // whole.block_size // whole.num_kv_heads,
        num_tokens=whole.block_size,
        heads_first=heads_first,
    )


def bytes_of(runs: Sequence[Run], *, of_page: bool) -> npt.NDArray[np.int64]:
    """The number of each byte that the runs name, in order."""
    numbers = []
    for run in runs:
        start, step = (run.page_start, run.page_stride) if of_page else (run.whole_start, run.whole_stride)
        numbers.append((start + step * np.arange(run.times)[:, None] + np.arange(run.num_bytes)).reshape(-1))
    return np.concatenate([np.empty(0, np.int64), *numbers])


def scatter(whole: Bytes, shares: Sequence[PageShare]) -> list[Bytes]:
    pages = [np.zeros(share.page_bytes, np.uint8) for share in shares]
    for page, share in zip(pages, shares, strict=True):
        page[bytes_of(share.loads, of_page=True)] = whole[bytes_of(share.loads, of_page=False)]
    return pages


def gather(pages: Sequence[Bytes], shares: Sequence[PageShare]) -> Bytes:
    whole = np.zeros(shares[0].whole_bytes, np.uint8)
    for page, share in zip(pages, shares, strict=True):
        whole[bytes_of(share.stores, of_page=False)] = page[bytes_of(share.stores, of_page=True)]
    return whole


@pytest.mark.parametrize("heads_first", [True, False])
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_family_has_the_same_bytes_with_any_number_of_ranks(name: str, heads_first: bool) -> None:
    splits = [num_ranks for num_ranks in (1, 2, 4, 8) if read_specs(name, num_ranks)]
    assert splits[:2] == [1, 2]
    random = np.random.default_rng(0)
    content: list[Bytes] = []
    for num_ranks in splits:
        for kind, (spec, whole) in enumerate(read_specs(name, num_ranks)):
            page = page_of(spec, whole, name, num_ranks, heads_first=heads_first)
            shares = [share_page(page, rank, num_ranks) for rank in range(num_ranks)]
            assert {share.page_bytes for share in shares} == {spec.unpadded_page_size_bytes}
            assert {share.whole_bytes for share in shares} == {whole.unpadded_page_size_bytes}
            if kind == len(content):
                content.append(random.integers(0, 256, whole.unpadded_page_size_bytes, np.uint8))
            pages = scatter(content[kind], shares)  # as if another number of ranks had written
            assert np.array_equal(gather(pages, shares), content[kind])
            if num_ranks == 1:
                assert shares[0].loads == shares[0].stores == (Run(0, 0, spec.unpadded_page_size_bytes),)
                assert np.array_equal(pages[0], content[kind])


def fields() -> st.SearchStrategy[Field]:
    return st.builds(Field, st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 6))


def pages() -> st.SearchStrategy[Page]:
    rows = st.builds(Rows, st.integers(1, 5), st.lists(fields(), min_size=1, max_size=3).map(tuple))
    return st.lists(rows, min_size=1, max_size=4).map(tuple)


counts = st.sampled_from([1, 2, 4, 8])


@given(pages(), counts)
def test_each_byte_is_written_once_and_every_page_is_filled_once(page: Page, num_ranks: int) -> None:
    shares = [share_page(page, rank, num_ranks) for rank in range(num_ranks)]
    written = np.concatenate([bytes_of(share.stores, of_page=False) for share in shares])
    assert np.array_equal(np.sort(written), np.arange(shares[0].whole_bytes))
    for share in shares:
        assert np.array_equal(np.sort(bytes_of(share.loads, of_page=True)), np.arange(share.page_bytes))


def test_what_all_ranks_have_is_written_by_one() -> None:
    shares = [share_page(replicated_page(100), rank, 4) for rank in range(4)]
    assert [len(share.stores) for share in shares] == [1, 0, 0, 0]
    assert {share.loads for share in shares} == {(Run(0, 0, 100),)}
    assert shares[3].whole_bytes == 100


def test_heads_that_come_first_are_one_run() -> None:
    page = attention_page(num_heads=8, head_bytes=256, num_tokens=16, heads_first=True) * 3
    assert share_page(page, 1, 4).loads == tuple(Run(i * 8192, i * 32768 + 8192, 8192) for i in range(3))
    page = attention_page(num_heads=8, head_bytes=128, num_tokens=16, heads_first=True, are_halves_apart=True)
    assert share_page(page, 3, 4).loads == (Run(0, 12288, 4096, 2, 4096, 16384),)
    page = attention_page(num_heads=8, head_bytes=256, num_tokens=16, heads_first=False)
    assert share_page(page, 1, 4).loads == (Run(0, 512, 512, 16, 512, 2048),)


def test_projections_of_a_convolution_are_cut_each_by_itself() -> None:
    page = state_page([(3, 4 + 2 * 2), (2, 2, 1)], [2, 4], num_ranks=2)
    assert page == (Rows(3, (Field(8, 2), Field(4, 2), Field(4, 2))), Rows(1, (Field(4, 8),)))
    share = share_page(page, 1, 2)
    assert share.loads[:3] == (Run(0, 8, 8, 3, 16, 32), Run(8, 20, 4, 3, 16, 32), Run(12, 28, 4, 3, 16, 32))


def test_what_cannot_be_dealt_out_is_refused() -> None:
    with pytest.raises(CacheLayoutError, match="6 units can neither be split over 4 ranks"):
        share_page((Rows(1, (Field(6, 1),)),), 0, 4)
    with pytest.raises(CacheLayoutError, match="is of no kind whose order is known"):
        state_page([(3, 4), (2, 2), (2, 2)], [2, 2, 2], num_ranks=2)
    with pytest.raises(CacheLayoutError, match="is not made of 4 values and of pairs of 3"):
        state_page([(3, 9), (2, 2, 3)], [2, 2], num_ranks=2)
    with pytest.raises(CacheLayoutError, match="a page of 9 bytes is no part of 16 bytes for 2 ranks"):
        share_beside(9, 16, 0, 2)


class Rank:
    """One rank: each layer's part of a block is a ref of its own, with room of others between."""

    def __init__(
        self, arena: Bytes, layers: Sequence[Page], rank: int, num_ranks: int, *, is_staged: bool = False
    ) -> None:
        self.share = share_page([rows for layer in layers for rows in layer], rank, num_ranks)
        refs, offset = [], 0
        for layer in layers:
            size = share_page(layer, rank, num_ranks).page_bytes
            refs.append(CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=size, offset=offset))
            offset += size + 5
        self.blocks = torch.zeros((NUM_ROWS, offset), dtype=torch.int8)
        tensor = CanonicalKVCacheTensor(tensor=self.blocks, page_size_bytes=offset)
        self.caches = CanonicalKVCaches(tensors=(tensor,), group_refs=(tuple(refs),))
        self.worker: OffloadingWorker = CpuWorker(self.caches, arena, shares=[self.share])
        if is_staged:
            staging = {"make_lane": HostLane, "staging_bytes": 3 * self.share.page_bytes}
            self.worker = StagedWorker(self.caches, arena, shares=[self.share], **staging)

    def parts(self, row: int) -> list[Bytes]:
        """The bytes of a block, layer by layer: views."""
        refs = self.caches.group_refs[0]
        blocks = self.blocks.numpy().view(np.uint8)
        return [blocks[row, ref.offset : ref.offset + ref.page_size_bytes] for ref in refs]

    def content(self, row: int) -> Bytes:
        return np.concatenate(self.parts(row))

    def fill(self, row: int, content: Bytes) -> None:
        for part, start in zip(self.parts(row), self.caches.ref_starts(GroupIdx(0)), strict=True):
            part[:] = content[start : start + len(part)]


NUM_ROWS, NUM_SLOTS = 6, 400


@settings(max_examples=60)
@given(
    st.lists(pages(), min_size=1, max_size=3),
    counts,
    counts,
    st.integers(1, 3),
    st.integers(7, 300),
    st.booleans(),
    st.sampled_from([None, {}, {"LARGE_BYTES": 1}, {"DIRECT_BYTES": 1}]),
)
def test_workers_write_as_some_ranks_and_read_as_others(
    layers: list[Page],
    writers: int,
    readers: int,
    num_blocks: int,
    slot_bytes: int,
    in_order: bool,
    link: dict[str, int] | None,
) -> None:
    """On a CPU, or over a link to a device, whose pieces go all its ways."""
    arena = np.zeros((NUM_SLOTS, slot_bytes), np.uint8)
    with mock.patch.multiple("octavo.transfer.link", **link or {}) if link else nullcontext():
        run_ranks(arena, layers, writers, readers, num_blocks, in_order=in_order, is_staged=link is not None)


def run_ranks(
    arena: Bytes, layers: list[Page], writers: int, readers: int, num_blocks: int, *, in_order: bool, is_staged: bool
) -> None:
    slot_bytes = arena.shape[1]
    store = [Rank(arena, layers, rank, writers, is_staged=is_staged) for rank in range(writers)]
    load = [Rank(arena, layers, rank, readers, is_staged=is_staged) for rank in range(readers)]
    random = np.random.default_rng(1)
    blocks = [random.integers(0, 256, store[0].share.whole_bytes, np.uint8) for _ in range(num_blocks)]
    num_slots = -(-sum(map(len, blocks)) // slot_bytes)
    if num_slots > NUM_SLOTS:
        return
    slots = [Slot(slot) for slot in (range(num_slots) if in_order else random.permutation(NUM_SLOTS)[:num_slots])]
    rows = [Row(5 - index) for index in range(num_blocks)]
    for rank in store:
        for row, page in zip(rows, blocks, strict=True):
            rank.fill(row, scatter(page, [rank.share])[0])
        rank.worker.submit_store(1, [ChunkCopy(GroupIdx(0), rows, slots)])
        assert rank.worker.wait([1], 60)
    chunk = np.concatenate(blocks)
    assert np.array_equal(arena[slots].reshape(-1)[: len(chunk)], chunk)
    wanted = [row if index != 1 else NO_ROW for index, row in enumerate(rows)]
    for rank in load:
        rank.worker.submit_load(2, [ChunkCopy(GroupIdx(0), wanted, slots)])
        assert rank.worker.wait([2], 60)
        for index, (row, page) in enumerate(zip(rows, blocks, strict=True)):
            expected = scatter(page, [rank.share])[0]
            assert np.array_equal(rank.content(row), np.zeros_like(expected) if index == 1 else expected)
    for rank in (*store, *load):
        assert not rank.worker.get_finished()[0].failed
        rank.worker.close()


def test_a_share_of_other_pages_is_refused() -> None:
    caches = Rank(np.zeros((1, 64), np.uint8), [replicated_page(64)], 0, 1).caches
    with pytest.raises(
        CacheLayoutError, match=r"group 0 has pages of 64 bytes, and the rank's share is of pages of 32"
    ):
        CpuWorker(caches, np.zeros((1, 64), np.uint8), shares=[share_page(replicated_page(32), 0, 1)])
