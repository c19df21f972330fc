"""The wire form: golden files, properties, and what a decoder must refuse.

The golden files `vllm-0.32-*` hold payloads that a real vLLM 0.32 sent (gemma3, qwen3_next and qwen3 on the CPU), and
what msgpack alone says of them. `vllm-arrays-until-0.23` is made by hand, one line for each form that vLLM had.
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from octavo.errors import InputError, WireError
from octavo.events.messages import MAX_HASHES, AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch
from octavo.events.published_plan import PublishedGroup, PublishedPlan
from octavo.events.skim import skim_batch
from octavo.events.wire import WireLimits, decode_batch, decode_sequence, encode_batch, encode_sequence
from rigs.event_strategies import batches

GOLDEN = Path(__file__).parent / "golden"
pack = msgspec.msgpack.encode


def golden(pattern: str) -> list[Any]:
    lines = [
        pytest.param(json.loads(line), id=f"{path.stem}: {json.loads(line)['form']}")
        for path in sorted(GOLDEN.glob(pattern))
        for line in path.read_text().splitlines()
    ]
    assert lines
    return lines


def as_told(value: Any) -> Any:
    """What the golden file says, as the decoder gives it: lists of keys are tuples, and bytes are bytes."""
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    return tuple(map(as_told, value)) if isinstance(value, list) else value


def assert_fields(event: Any, told: dict[str, Any]) -> None:
    for name in event.__struct_fields__:
        value = getattr(event, name)
        # Equal and of the same type: 0 is not False, and neither is None.
        assert repr(as_told_list(value)) == repr(as_told(told.get(name))), name


def as_told_list(value: Any) -> Any:
    return tuple(map(as_told_list, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("line", golden("vllm-0.32-*.jsonl"))
def test_present_form(line):
    payload = bytes.fromhex(line["payload"])
    batch = decode_batch(payload)
    ts, told_events, rank = line["decoded"]
    assert (batch.ts, batch.data_parallel_rank) == (ts, rank)
    assert [type(event).__name__ for event in batch.events] == [told["type"] for told in told_events]
    for event, told in zip(batch.events, told_events, strict=True):
        assert_fields(event, told)
    assert encode_batch(batch) == payload
    assert decode_batch(memoryview(payload)) == batch


@pytest.mark.parametrize("line", golden("vllm-arrays-*.jsonl"))
def test_older_form(line):
    batch = decode_batch(bytes.fromhex(line["payload"]))
    ts, told_events, *more = line["decoded"]
    assert (batch.ts, batch.data_parallel_rank) == (ts, more[0] if more else None)
    for event, (told_type, *values) in zip(batch.events, told_events, strict=True):
        assert type(event).__name__ == told_type
        told = dict(zip(event.__struct_fields__, values, strict=False))
        if "block_hashes" in told:
            told["block_hashes"] = [h % 2**64 if isinstance(h, int) else h for h in told["block_hashes"]]
        assert_fields(event, told)
    assert decode_batch(encode_batch(batch)) == batch


def test_golden_files_hold_each_kind():
    events = [e for p in golden("*.jsonl") for e in decode_batch(bytes.fromhex(p.values[0]["payload"])).events]
    stored = [e for e in events if isinstance(e, BlockStored)]
    assert {type(e) for e in events} == {BlockStored, BlockRemoved, AllBlocksCleared}
    assert {"mamba", "sliding_window", "full_attention", None} <= {e.kv_cache_spec_kind for e in stored}
    assert {"GPU", "CPU"} <= {e.medium for e in stored}
    assert any(not e.block_hashes and e.token_ids for e in stored)
    assert any(isinstance(e.block_hashes[0], bytes) for e in stored if e.block_hashes)


@given(batches())
def test_round_trip(batch):
    payload = encode_batch(batch)
    again = decode_batch(payload)
    assert again == batch
    assert encode_batch(again) == payload
    assert list(map(hash, again.events)) == list(map(hash, batch.events))


@given(batches(), st.dictionaries(st.text(min_size=1).map("x_".__add__), st.integers() | st.lists(st.text())))
def test_what_is_not_known_is_skipped(batch, fields):
    fields = {name: [] if isinstance(v, int) and not -(2**63) <= v < 2**64 else v for name, v in fields.items()}
    raw = msgspec.msgpack.decode(encode_batch(batch))
    ts, events, rank = [*raw, None][:3]
    assert decode_batch(pack([ts, [fields | event | fields for event in events], rank, "new", fields])) == batch


@pytest.mark.parametrize(
    "make",
    [
        lambda group: BlockRemoved(block_hashes=[1], medium="GPU", group_idx=group),
        lambda group: BlockStored(
            block_hashes=[1],
            parent_block_hash=None,
            token_ids=[1],
            block_size=1,
            lora_id=None,
            medium="GPU",
            lora_name=None,
            group_idx=group,
        ),
    ],
)
def test_first_group_is_not_no_group(make):
    first, none = make(0), make(None)
    assert first != none
    assert hash(first) != hash(none)
    payloads = [encode_batch(KVEventBatch(ts=1.0, events=[event])) for event in (first, none)]
    assert payloads[0] != payloads[1]
    assert [decode_batch(p).events[0].group_idx for p in payloads] == [0, None]


def test_extra_keys_may_mix_strings_and_bytes():
    keys = [("lora", b"digest", ("image", 3, b"x")), None, ()]
    assert decode_batch(pack([1.0, [stored(extra_keys=keys)]])).events[0].extra_keys == keys
    as_array = list(stored(extra_keys=keys).values())
    assert decode_batch(pack([1.0, [as_array]])).events[0].extra_keys == keys


def test_of_a_repeated_key_the_last_counts():
    event = b"\x84\xa4type\xacBlockRemoved" + b"\xa6medium\xa1a\xa6medium\xa1b\xacblock_hashes\x91\x07"
    assert decode_batch(b"\x92\x01\x91" + event).events == [BlockRemoved(block_hashes=[7], medium="b")]


def stored(**changes: Any) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": [1],
        "parent_block_hash": None,
        "token_ids": [1],
        "block_size": 1,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
    } | changes


def removed(hashes: bytes) -> bytes:
    """A batch with one removal, whose hashes are these bytes."""
    return b"\x92\x01\x91\x83\xa4type\xacBlockRemoved\xa6medium\xc0\xacblock_hashes" + hashes


def with_keys(keys: bytes, *, medium: bytes = b"\xc0") -> bytes:
    event = pack(stored(extra_keys=0, medium=0)).replace(b"\xa6medium\x00", b"\xa6medium" + medium)
    return b"\x92\x01\x91" + event[:-1] + keys


DEEP = b"\x91" * 200_000
HOSTILE = {
    "empty": b"",
    "not a batch": pack("hello"),
    "a map as batch": pack({"ts": 1.0, "events": []}),
    "no events": pack([1.0]),
    "trailing bytes": pack([1.0, []]) + b"\x00",
    "NaN": pack([float("nan"), []]),
    "infinite": pack([float("inf"), []]),
    "timestamp as string": pack(["1", []]),
    "negative rank": pack([1.0, [], -1]),
    "event is a number": pack([1.0, [3]]),
    "event is nothing": pack([1.0, [None]]),
    "event without type": pack([1.0, [{"block_hashes": []}]]),
    "empty array as event": pack([1.0, [[]]]),
    "unknown type": pack([1.0, [{"type": "BlockMoved"}]]),
    "unknown type in an array": pack([1.0, [["BlockMoved", [1]]]]),
    "huge unknown type": pack([1.0, [{"type": "x" * 1_000_000}]]),
    "both forms in one batch": pack([1.0, [stored(), ["AllBlocksCleared"]]]),
    "both forms, the older first": pack([1.0, [["AllBlocksCleared"], stored()]]),
    "missing field": pack([1.0, [{"type": "BlockRemoved", "medium": "GPU"}]]),
    "too few elements": pack([1.0, [["BlockStored", [1], None, [1]]]]),
    "negative hash": pack([1.0, [stored(block_hashes=[-1])]]),
    "hash as string": pack([1.0, [stored(block_hashes=["a"])]]),
    "hash as float": pack([1.0, [stored(block_hashes=[1.0])]]),
    "hash as bool": pack([1.0, [stored(block_hashes=[True])]]),
    "hash as ext": removed(b"\x91\xd8\x01" + bytes(16)),
    "nested hashes": pack([1.0, [stored(block_hashes=[[1]])]]),
    "negative block size": pack([1.0, [stored(block_size=-1)]]),
    "negative group": pack([1.0, [stored(group_idx=-1)]]),
    "token as string": pack([1.0, [stored(token_ids=["a"])]]),
    "medium as number": pack([1.0, [stored(medium=3)]]),
    "not UTF-8": with_keys(b"\xc0", medium=b"\xa2\xff\xff"),
    "not UTF-8 in extra keys": with_keys(b"\x91\x92\xc4\x01a\xa2\xff\xff"),
    "key that is no string": b"\x92\x01\x91\x82\xa4type\xb0AllBlocksCleared\x07\x00",
    "reserved byte": removed(b"\x91\xc1"),
    "extra keys three deep": pack([1.0, [stored(extra_keys=[[[[1]]]])]]),
    "extra keys as map": pack([1.0, [stored(extra_keys=[[{"a": 1}]])]]),
    "extra keys as map, beside bytes": pack([1.0, [stored(extra_keys=[[b"a", {"a": 1}]])]]),
    "extra keys as number": pack([1.0, [stored(extra_keys=3)]]),
    "more extra keys than any block has": pack([1.0, [stored(extra_keys=[[b"a"] * 2000])]]),
    "more extra keys than are read one by one": pack([1.0, [stored(extra_keys=[[b"a"] * 1000] * 600)]]),
    "deep batch": DEEP,
    "deep hashes": removed(DEEP),
    "deep extra keys": with_keys(b"\x91" + DEEP),
    "deep extra keys, beside bytes": with_keys(b"\x91\x92\xc4\x01a" + DEEP),
    "deep unknown field": b"\x92\x01\x91\x82\xa4type\xb0AllBlocksCleared\xa1x" + DEEP,
    "a million hashes": pack([1.0, [stored(block_hashes=[1] * 1_000_000)]]),
    "a million hashes in the older form": pack([1.0, [["BlockRemoved", [1] * 1_000_000]]]),
    "hashes in many events": pack([1.0, [stored(block_hashes=[1] * 300, token_ids=[])] * 1_000]),
    "too many extra keys": pack([1.0, [stored(extra_keys=[None] * 300_000)]]),
    "too many events": pack([1.0, [{"type": "AllBlocksCleared"}] * 70_000]),
    "too many tokens": pack([1.0, [stored(token_ids=[1] * 2_200_000)] * 2]),
    "too many bytes": pack([1.0, [stored(medium="x" * (16 << 20))]]),
}
CLAIMS = {
    "array": b"\xdd\x3f\xff\xff\xff",
    "map": b"\xdf\x3f\xff\xff\xff",
    "bin": b"\xc6\x3f\xff\xff\xff",
    "str": b"\xdb\x3f\xff\xff\xff",
    "ext": b"\xc9\x3f\xff\xff\xff\x01",
}


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE)
def test_refuses(payload):
    with pytest.raises(WireError) as caught:
        decode_batch(payload)
    assert len(str(caught.value)) < 300
    assert caught.value.__context__ is None  # nothing keeps the payload


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
@pytest.mark.parametrize(
    "place",
    [
        lambda claim: claim,
        lambda claim: b"\x92\x01" + claim,
        lambda claim: b"\x92\x01\x91" + claim,
        lambda claim: b"\x93\x01\x90\x00" + claim,
        removed,
        lambda claim: removed(b"\x91" + claim),
        with_keys,
        lambda claim: with_keys(b"\x91" + claim),
        lambda claim: with_keys(b"\x91\x91" + claim),
        lambda claim: with_keys(b"\x91\x91\x91" + claim),
        lambda claim: with_keys(b"\x91\x92\xc4\x01a" + claim),
        lambda claim: with_keys(b"\x91\x92\xc4\x01a\x91" + claim),
        lambda claim: with_keys(b"\xc0", medium=claim),
        lambda claim: b"\x92\x01\x91\x92\xacBlockRemoved" + claim,
        lambda claim: b"\x92\x01\x91\x98\xabBlockStored\x90\xc0\x90\x01\xc0\xc0\xc0" + claim,
    ],
)
def test_lengths_are_not_believed(place, claim, peak_bytes):
    with pytest.raises(WireError):
        decode_batch(place(claim))
    assert peak_bytes() < 1 << 20


@pytest.fixture
def peak_bytes():
    import tracemalloc

    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


@pytest.mark.parametrize("line", golden("*.jsonl"))
def test_truncated(line):
    payload = bytes.fromhex(line["payload"])
    for end in range(0, len(payload), max(1, len(payload) // 200)):
        with pytest.raises(WireError):
            decode_batch(payload[:end])


def test_limits():
    batch = KVEventBatch(ts=1.0, events=[BlockRemoved(block_hashes=[1, 2], medium=None)] * 2)
    payload = encode_batch(batch)
    fitting = WireLimits(max_payload_bytes=len(payload), max_events=2, max_hashes=4, max_tokens=0)
    assert decode_batch(payload, limits=fitting) == batch
    for limit in ("max_payload_bytes", "max_events", "max_hashes"):
        tight = {limit: getattr(fitting, limit) - 1}
        with pytest.raises(WireError, match="exceeds the limit"):
            decode_batch(payload, limits=WireLimits(**tight))


@pytest.mark.parametrize("limits", [{"max_hashes": MAX_HASHES + 1}, {"max_events": -1}, {"max_payload_bytes": -1}])
def test_limits_above_what_is_ever_read(limits):
    with pytest.raises(InputError, match=next(iter(limits))):
        WireLimits(**limits)


@given(st.integers(0, 2**64 - 1))
def test_sequence(sequence):
    frame = encode_sequence(sequence)
    assert frame == sequence.to_bytes(8, "big")
    assert decode_sequence(frame) == sequence


@pytest.mark.parametrize("frame", [b"", b"1234567", b"123456789"])
def test_sequence_frame_of_another_size(frame):
    with pytest.raises(WireError):
        decode_sequence(frame)


@pytest.mark.parametrize("sequence", [-1, 2**64])
def test_sequence_that_has_no_frame(sequence):
    with pytest.raises(InputError):
        encode_sequence(sequence)


def test_threads_may_share_the_decoder():
    from concurrent.futures import ThreadPoolExecutor

    payloads = [bytes.fromhex(p.values[0]["payload"]) for p in golden("*.jsonl")]
    alone = [decode_batch(payload) for payload in payloads]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for together in pool.map(lambda _: [decode_batch(p) for p in payloads], range(100)):
                assert together == alone
    finally:
        sys.setswitchinterval(interval)


def test_the_begin_of_a_telling_travels_with_a_batch_and_what_is_none_is_skipped():
    payload = encode_batch(KVEventBatch(ts=1.0, events=[], whole_since=7))
    assert [read(payload).whole_since for read in (decode_batch, skim_batch)] == [7, 7]
    for fifth in (None, -1, "7", 1.5, {"a": 1}, [7]):
        for read in (decode_batch, skim_batch):
            assert read(msgspec.msgpack.encode([1.0, [], 0, None, fifth])).whole_since is None


def test_a_plan_travels_with_a_batch_and_what_is_none_is_skipped():
    plan = PublishedPlan(hash_block_size=16, groups=[PublishedGroup(kind="mamba", block_size=64)], heartbeat_s=10.0)
    assert decode_batch(encode_batch(KVEventBatch(ts=1.0, events=[], plan=plan))).plan == plan
    for fourth in (7, "future", {"hash_block_size": 0, "groups": []}, [[]]):
        assert decode_batch(msgspec.msgpack.encode([1.0, [], 0, fourth])).plan is None
