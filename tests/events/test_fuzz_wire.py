"""The decoder under fire: mutated golden messages and random bytes. It says WireError or gives a batch; it never
crashes, never keeps anything, and its memory is bounded.

`OCTAVO_FUZZ_MESSAGES` says how many messages; `.ci/run` asks for 100,000.
"""

import gc
import json
import os
import random
import resource
import tracemalloc
from pathlib import Path

import pytest

from octavo.errors import WireError
from octavo.events.messages import KVEventBatch
from octavo.events.wire import decode_batch, decode_sequence, encode_batch
from rigs.skimmed import check_skimmed

NUM_MESSAGES = int(os.environ.get("OCTAVO_FUZZ_MESSAGES", "2000"))
NUM_TRACED = min(NUM_MESSAGES, 2000)
"""Following every allocation is slow; the memory of the whole process is watched for all messages."""

SEEDS = [
    bytes.fromhex(json.loads(line)["payload"])
    for path in sorted((Path(__file__).parent / "golden").glob("*.jsonl"))
    for line in path.read_text().splitlines()
]
HEADERS = (
    *(bytes([kind, *size]) for kind in (0xC6, 0xC9, 0xDB, 0xDD, 0xDF) for size in ((0x40, 0, 0, 0), (0, 0x3F, 0, 0))),
    *(bytes([kind, 0xFF, 0xFF]) for kind in (0xC5, 0xC8, 0xDA, 0xDC, 0xDE)),
    *(bytes([kind]) for kind in (0xC0, 0xC1, 0xC2, 0xC3, 0x80, 0x90, 0x91, 0xA0, 0x81, 0xFF)),
    b"\xcb\x7f\xf8" + bytes(6),  # NaN
    b"\xcb\x7f\xf0" + bytes(6),  # infinity
    b"\xcf" + b"\xff" * 8,  # the largest integer
    b"\xd3\x80" + bytes(7),  # the smallest
    b"\xa2\xff\xff",  # not UTF-8
    b"\xd6\xff\x00\x00\x00\x00",  # a timestamp
    b"\x91" * 3_000,
    b"\x81\xa1a" * 3_000,
)


def mutated(rng: random.Random) -> bytes:
    message = bytearray(rng.choice(SEEDS))
    for _ in range(rng.choice((1, 1, 2, 5))):
        # Mostly near the start, where structure is; tokens fill the rest.
        at = rng.randrange(min(len(message), rng.choice((16, 128, 1 << 20))) or 1) if message else 0
        match rng.randrange(8):
            case 0:
                message[at : at + 1] = bytes([rng.randrange(256)])
            case 1 if message:
                message[at] ^= 1 << rng.randrange(8)
            case 2:
                del message[at:]
            case 3:
                del message[at : at + rng.randrange(1, 9)]
            case 4:
                message[at:at] = rng.choice(HEADERS)
            case 5:
                header = rng.choice(HEADERS)
                message[at : at + len(header)] = header
            case 6:
                other = rng.choice(SEEDS)
                message[at:] = other[rng.randrange(len(other)) :]
            case _:
                end = at + rng.randrange(1, 65)
                message[at:at] = message[at:end]
    return bytes(message)


def message_of(rng: random.Random) -> bytes:
    match rng.randrange(8):
        case 0:
            return rng.randbytes(rng.randrange(300))
        case 1:  # an envelope, then noise
            return b"\x93\xcb\x41\xda" + bytes(6) + b"\x91" + rng.choice((b"\x81\xa4type", b"\x92")) + rng.randbytes(60)
        case _:
            return mutated(rng)


def decoded(message: bytes) -> KVEventBatch | None:
    try:
        return decode_batch(message)
    except WireError as error:
        assert len(str(error)) < 300  # noqa: PT017  # most messages raise, some do not
        return None


def test_fuzz():
    rng = random.Random(4)
    num_batches = 0
    for _ in range(NUM_MESSAGES // 10):  # warm up
        decoded(message_of(rng))
    resident_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(NUM_MESSAGES):
        message = message_of(rng)
        batch = decoded(message)
        assert batch == check_skimmed(message) or "nan" in repr(batch)
        if batch is not None:
            num_batches += 1
            assert decode_batch(encode_batch(batch)) == batch or "nan" in repr(batch)
            assert all(isinstance(hash(event), int) for event in batch.events)
    print(f"{num_batches} of {NUM_MESSAGES} messages are batches")
    assert NUM_MESSAGES // 50 < num_batches < NUM_MESSAGES  # neither kind is missing
    # A list of the longest length that is ever believed is 32 MiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident_kib < 64 << 10


@pytest.mark.parametrize("seed", [1, 2])
def test_fuzz_keeps_nothing(seed):
    rng = random.Random(seed)
    messages = [message_of(rng) for _ in range(NUM_TRACED // 4)]
    for message in messages:
        decoded(message)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for message in messages * 2:
            decoded(message)
        gc.collect()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 64 << 10
    assert peak - before < 48 << 20


def test_fuzz_of_sequences():
    rng = random.Random(5)
    for _ in range(min(NUM_MESSAGES, 2000)):
        frame = rng.randbytes(rng.randrange(12))
        try:
            assert decode_sequence(frame).to_bytes(8, "big") == frame
        except WireError:
            assert len(frame) != 8
