"""The wire against vLLM's own classes: the same bytes for the same message, and each side's decoder reads the other."""

import warnings
from typing import Any

import msgspec
import pytest
from hypothesis import given

from octavo.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KVEventBatch,
    decode_batch,
    encode_batch,
    messages,
)
from rigs.event_strategies import batches

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own
    from vllm.distributed import kv_events as vllm_events

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(type=vllm_events.KVEventBatch)
NAMES = ("BlockStored", "BlockRemoved", "AllBlocksCleared", "KVEventBatch")


def as_vllm(batch: KVEventBatch) -> vllm_events.KVEventBatch:
    """The same message in vLLM's classes."""
    return vllm_events.KVEventBatch(
        ts=batch.ts,
        events=[getattr(vllm_events, type(event).__name__)(**msgspec.structs.asdict(event)) for event in batch.events],
        data_parallel_rank=batch.data_parallel_rank,
    )


def plain(value: Any) -> Any:
    """A message as names and values; the nested keys that vLLM reads as lists are tuples here."""
    if isinstance(value, msgspec.Struct):
        return type(value).__name__, plain(msgspec.structs.astuple(value))
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("name", NAMES)
def test_fields_are_the_same(name):
    ours, theirs = (msgspec.structs.fields(getattr(module, name)) for module in (messages, vllm_events))
    own = {"plan", "whole_since"} if name == "KVEventBatch" else set()  # last, and only with batches without events
    assert {f.name for f in ours[len(theirs) :]} == own
    assert [(f.name, f.required, f.default) for f in ours[: len(theirs)]] == [
        (f.name, f.required, f.default) for f in theirs
    ]


def test_what_vllm_does_not_know_is_skipped_there():
    read = DECODER.decode(encode_batch(KVEventBatch(ts=1.0, events=[], data_parallel_rank=3, whole_since=7)))
    assert (read.ts, read.events, read.data_parallel_rank) == (1.0, [], 3)


@given(batches())
def test_bytes_are_the_same(batch):
    assert encode_batch(batch) == ENCODER.encode(as_vllm(batch))


@given(batches())
def test_vllm_reads_ours(batch):
    assert plain(DECODER.decode(encode_batch(batch))) == plain(as_vllm(batch))


@given(batches())
def test_ours_reads_vllm(batch):
    assert decode_batch(ENCODER.encode(as_vllm(batch))) == batch


@given(batches())
def test_events_differ_where_those_of_vllm_do(batch):
    # vLLM's hashes ignore lora_name, ours do not; equality looks at everything on both sides.
    theirs = as_vllm(batch).events
    for i, event in enumerate(batch.events):
        for j, other in enumerate(batch.events):
            assert (event == other) == (theirs[i] == theirs[j])
            assert event != other or hash(event) == hash(other)


@pytest.mark.parametrize("module", [messages, vllm_events], ids=["octavo", "vllm"])
def test_first_group_is_not_no_group(module):
    first, none = (module.BlockRemoved(block_hashes=[1], medium="GPU", group_idx=group) for group in (0, None))
    assert first != none
    assert hash(first) != hash(none)
    assert ENCODER.encode(first) != ENCODER.encode(none)


def test_vllm_reads_each_type():
    stored = BlockStored(
        block_hashes=[2**64 - 1, b"\xff" * 32],
        parent_block_hash=b"",
        token_ids=[0, 150_000],
        block_size=16,
        lora_id=None,
        medium=None,
        lora_name="tuned",
        extra_keys=[("tuned", ("image", 3)), None],
        group_idx=0,
    )
    removed = BlockRemoved(block_hashes=[0], medium="CPU", group_idx=0)
    batch = KVEventBatch(ts=1.5, events=[stored, removed, AllBlocksCleared()], data_parallel_rank=0)
    theirs = DECODER.decode(encode_batch(batch))
    assert [type(event) for event in theirs.events] == [
        vllm_events.BlockStored,
        vllm_events.BlockRemoved,
        vllm_events.AllBlocksCleared,
    ]
    assert [getattr(event, "group_idx", None) for event in theirs.events] == [0, 0, None]
    assert theirs.data_parallel_rank == 0
