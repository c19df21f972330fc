"""KV events: encoding and decoding, beside vLLM's classes where vLLM is installed.

    python benchmarks/bench_events_wire.py [--blocks 512] [--block-size 16] [--rounds 60]

All rows are measured in turn, round after round, and the best round counts. A ratio above 1 is faster than vLLM.
"""

import argparse
import random
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import msgspec

from octavo.events import decode_batch, encode_batch, messages

CALLS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=512)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=60)
    args = parser.parse_args()

    rows = rows_of("octavo", messages, encode_batch, decode_batch, args)
    try:
        from vllm.distributed import kv_events  # where `make test-vllm` has installed it
    except ImportError as e:
        print(f"vLLM is left out: {e}")
    else:
        decoder = msgspec.msgpack.Decoder(kv_events.KVEventBatch)
        rows |= rows_of("vllm", kv_events, msgspec.msgpack.Encoder().encode, decoder.decode, args)
    print_table(rows, measure(rows, args.rounds), args.blocks)


Row = tuple[str, str]
"""Whose, and what."""


def rows_of(
    whose: str, classes: Any, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], args: argparse.Namespace
) -> dict[Row, Callable[[], Any]]:
    rows: dict[Row, Callable[[], Any]] = {}
    for name, batch in batches(classes, args.blocks, args.block_size).items():
        payload = encode(batch)
        rows[whose, f"encode {name}"] = partial(encode, batch)
        rows[whose, f"decode {name}"] = partial(decode, payload)
    return rows


@cache
def hashes_and_tokens(num_blocks: int, num_tokens: int) -> tuple[list[int], list[int]]:
    """The same objects for both sides, so that neither has the better place in memory."""
    rng = random.Random(0)
    return [rng.getrandbits(64) for _ in range(num_blocks)], [rng.randrange(150_000) for _ in range(num_tokens)]


def batches(classes: Any, num_blocks: int, block_size: int) -> dict[str, Any]:
    hashes, tokens = hashes_and_tokens(num_blocks, num_blocks * block_size)

    def stored(start: int, stop: int, *, with_tokens: bool) -> Any:
        return classes.BlockStored(
            block_hashes=hashes[start:stop],
            parent_block_hash=hashes[start - 1] if start else None,
            token_ids=tokens[start * block_size : stop * block_size] if with_tokens else [],
            block_size=block_size,
            lora_id=None,
            medium="GPU",
            lora_name=None,
            group_idx=0,
            kv_cache_spec_kind="full_attention",
        )

    events = {
        "stored, with tokens": [stored(0, num_blocks, with_tokens=True)],
        "stored, without tokens": [stored(0, num_blocks, with_tokens=False)],
        "stored, an event per block": [stored(i, i + 1, with_tokens=True) for i in range(num_blocks)],
        "removed, one event": [classes.BlockRemoved(block_hashes=hashes, medium="GPU", group_idx=0)],
        "removed, an event per block": [
            classes.BlockRemoved(block_hashes=[h], medium="GPU", group_idx=0) for h in hashes
        ],
    }
    return {name: classes.KVEventBatch(ts=1.0, events=e, data_parallel_rank=0) for name, e in events.items()}


def measure(rows: dict[Row, Callable[[], Any]], rounds: int) -> dict[Row, float]:
    """Seconds per call, of the best round."""
    best = dict.fromkeys(rows, float("inf"))
    whats = list(dict.fromkeys(what for _, what in rows))
    for round_ in range(rounds):
        for what in whats:
            sides = [row for row in rows if row[1] == what]
            for row in sides if round_ % 2 else reversed(sides):  # each is first in half of the rounds
                best[row] = min(best[row], seconds_per_call(rows[row]))
    return best


def seconds_per_call(call: Callable[[], Any]) -> float:
    call()  # what comes first shall not pay for cold caches
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS


def print_table(rows: dict[Row, Callable[[], Any]], best: dict[Row, float], num_blocks: int) -> None:
    print(f"{num_blocks} blocks".ljust(36) + f"{'octavo':>14}{'vllm':>14}  million blocks/s, ratio")
    for whose, what in rows:
        if whose == "octavo":
            ours, theirs = best[whose, what], best.get(("vllm", what))
            rate = f"{what:<36}{num_blocks / ours / 1e6:>14.2f}"
            print(rate + (f"{num_blocks / theirs / 1e6:>14.2f}  {theirs / ours:.2f}x" if theirs else f"{'-':>14}"))
    with_tokens, without = ("vllm", "decode stored, with tokens"), ("octavo", "decode stored, without tokens")
    if with_tokens in best:
        print(f"decoded without tokens, beside vLLM with tokens: {best[with_tokens] / best[without]:.1f}x")


if __name__ == "__main__":
    main()
