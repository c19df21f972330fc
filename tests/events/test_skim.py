"""A batch without its tokens shows what the whole batch shows."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies as st

from octavo.errors import WireError
from octavo.events.messages import BlockStored, KVEventBatch
from octavo.events.skim import skim_batch
from octavo.events.wire import WireLimits, decode_batch, encode_batch, encode_sequence
from rigs.event_peer import Peer, subscriber, take
from rigs.event_strategies import batches, events
from rigs.skimmed import SPECS, check_skimmed

PAYLOADS = [
    bytes.fromhex(json.loads(line)["payload"])
    for path in sorted((Path(__file__).parent / "golden").glob("*.jsonl"))
    for line in path.read_text().splitlines()
]


@st.composite
def of_known_groups(draw):
    """Of groups, blocks and media that the reader knows, mostly."""
    event = draw(events())
    fit = {"group_idx": draw(st.integers(0, len(SPECS))), "medium": draw(st.sampled_from(["GPU", "CPU"]))}
    fit |= {"block_hashes": draw(st.lists(st.integers(0, 9), max_size=6)), "ownership": None}
    if isinstance(event, BlockStored):
        fit |= {"block_size": draw(st.sampled_from([0, 16, 32, 48, 7])), "extra_keys": draw(st.none() | st.just([()]))}
    return msgspec.structs.replace(event, **{name: fit[name] for name in fit if hasattr(event, name)})


KNOWN = st.builds(KVEventBatch, ts=st.just(1.0), events=st.lists(of_known_groups(), max_size=8))


@given(batches() | KNOWN)
def test_any_batch_shows_the_same(batch):
    assert check_skimmed(encode_batch(batch)) is not None


@given(batch=KNOWN, junk=st.recursive(st.none() | st.floats() | st.text(max_size=3) | st.integers(-9, 9), st.lists))
def test_tokens_that_are_none_hide_nothing(batch, junk):
    if batch.events and isinstance(batch.events[0], BlockStored):
        batch.events[0].token_ids = junk
    check_skimmed(encode_batch(batch))


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_engines_sent_shows_the_same(payload):
    assert check_skimmed(payload) is not None


@pytest.mark.parametrize("limits", [{"max_payload_bytes": 99}, {"max_events": 1}, {"max_hashes": 3}, {"max_tokens": 3}])
def test_limits_hold(limits):
    event = {"type": "BlockStored", "block_hashes": [1] * 4, "parent_block_hash": None, "token_ids": [2] * 4}
    event |= {"block_size": 16, "lora_id": None, "medium": "GPU", "lora_name": None}
    payload = msgspec.msgpack.encode([1.0, [event, event]])
    problems = []
    for decode in (decode_batch, skim_batch):
        with pytest.raises(WireError) as refused:
            decode(payload, limits=WireLimits(**limits))
        problems.append(str(refused.value))
    assert problems[0] == problems[1]


@pytest.mark.parametrize("with_tokens", [True, False])
def test_a_subscriber_skips_tokens_if_it_is_told_to(with_tokens):
    event = BlockStored([1], None, [7, 8], 16, None, "GPU", None, group_idx=0)
    with Peer() as peer, subscriber(peer, with_tokens=with_tokens) as reader:
        peer.await_subscriber()
        peer.send(0, frames=[b"", encode_sequence(0), encode_batch(KVEventBatch(ts=1.0, events=[event]))])
        (item,) = take(reader, 1)
    assert (item.batch.events[0].token_ids == [7, 8]) is with_tokens
    assert item.batch.events[0].token_ids


def test_tokens_only_tell_whether_there_are_any():
    stored = {"block_hashes": [1], "parent_block_hash": None, "block_size": 16, "lora_id": None, "lora_name": None}
    for tokens in ([], [7, 8]):
        event = BlockStored(token_ids=tokens, medium="CPU", group_idx=0, **stored)
        (skimmed,) = skim_batch(encode_batch(KVEventBatch(ts=1.0, events=[event]))).events
        assert (bool(skimmed.token_ids), isinstance(skimmed, BlockStored)) == (bool(tokens), True)
