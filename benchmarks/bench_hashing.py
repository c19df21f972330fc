"""Block hashes: each algorithm beside its limit (the raw hash function on the same bytes), and vLLM where installed.

    python benchmarks/bench_hashing.py [--blocks 2048] [--block-size 16] [--rounds 30]

All rows are measured in turn, round after round, and the best round counts.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from octavo.hashing import HASH_ALGORITHMS, PLAIN, BlockHasher, MultiModalItem, RequestIdentity

APPENDS = 100
VLLM_NAMES = ("sha256", "sha256_cbor", "xxhash")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=2048)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()

    tokens = np.random.default_rng(0).integers(0, 150_000, args.blocks * args.block_size, dtype=np.int32)
    rows: dict[str, tuple[Callable[[], Any], int, str]] = {}
    for name in HASH_ALGORITHMS:
        try:
            rows |= rows_of_algorithm(name, args.block_size, tokens)
        except ImportError as e:
            print(f"{name}: left out, {e}")
    rows |= rows_of_vllm(args.block_size, tokens)
    print_table(rows, measure(rows, args.rounds))


def rows_of_algorithm(name: str, block_size: int, tokens: np.ndarray) -> dict[str, tuple[Callable[[], Any], int, str]]:
    """Name -> (what is timed, how many blocks it hashes, the row it is compared with)."""
    hasher = BlockHasher(hash_block_size=block_size, algorithm=name)
    num_blocks = len(tokens) // block_size
    # One image at the front: every later block is plain, but the identity has to be looked at.
    salted = RequestIdentity(
        cache_salt="tenant", multimodal=(MultiModalItem(identifier="a" * 64, offset=4, length=block_size * 4),)
    )
    lora = RequestIdentity(lora_name="tuned", lora_path="/loras/tuned")
    as_list = tokens.tolist()
    hashes = hasher.hash_tokens(tokens, PLAIN)

    def append() -> None:
        for _ in range(APPENDS):
            del hashes[-1]
            hasher.extend(hashes, tokens, PLAIN)

    limit = f"{name}: limit"
    return {
        limit: (limit_of(hasher, tokens), num_blocks, limit),
        f"{name}: plain": (lambda: hasher.hash_tokens(tokens, PLAIN), num_blocks, limit),
        f"{name}: salt and image": (lambda: hasher.hash_tokens(tokens, salted), num_blocks, limit),
        f"{name}: LoRA": (lambda: hasher.hash_tokens(tokens, lora), num_blocks, limit),
        f"{name}: from a list": (lambda: hasher.hash_tokens(as_list, PLAIN), num_blocks, limit),
        f"{name}: append a block": (append, APPENDS, limit),
    }


def limit_of(hasher: BlockHasher, tokens: np.ndarray) -> Callable[[], Any]:
    """The hash function alone, over messages of the same lengths that are ready in memory."""
    blocks = range(len(tokens) // hasher.hash_block_size)
    parent = bytes(hasher.digest_size_bytes + (3 if hasher.algorithm == "sha256_cbor" else 0))
    messages = [parent + m for m in hasher._messages(blocks, tokens, PLAIN)]  # noqa: SLF001
    if hasher.algorithm == "xxh3_128":
        from xxhash import xxh3_128_digest  # vLLM's environment has none

        return lambda: [xxh3_128_digest(m) for m in messages]
    return lambda: [sha256(m).digest() for m in messages]


def rows_of_vllm(block_size: int, tokens: np.ndarray) -> dict[str, tuple[Callable[[], Any], int, str]]:
    try:
        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.request import Request
    except ImportError:
        print("vLLM is not installed here: its rows are left out")
        return {}
    rows: dict[str, tuple[Callable[[], Any], int, str]] = {}
    for name in VLLM_NAMES:
        hash_fn = get_hash_fn_by_name(name)
        try:
            kv_cache_utils.init_none_hash(hash_fn)
        except ImportError:
            continue
        hasher = kv_cache_utils.get_request_block_hasher(block_size, hash_fn)
        request = Request("r", tokens.tolist(), SamplingParams(max_tokens=1), None)
        peer = (
            f"{name}_int32: limit"
            if name == "sha256"
            else f"{name}: limit"
            if name == "sha256_cbor"
            else "xxh3_128: limit"
        )
        rows[f"vLLM {name}"] = (partial(hasher, request), len(tokens) // block_size, peer)
        grown = Request("r", tokens.tolist(), SamplingParams(max_tokens=1), None)
        grown.block_hashes = hasher(grown)[:-1]
        rows[f"vLLM {name}: append a block"] = (
            partial(append_blocks, hasher, grown),
            APPENDS,
            peer,
        )
    return rows


def append_blocks(hasher: Callable[[Any], Any], request: object) -> None:
    for _ in range(APPENDS):
        hasher(request)


def measure(rows: dict[str, tuple[Callable[[], Any], int, str]], rounds: int) -> dict[str, float]:
    """The best nanoseconds per block of each row."""
    best = dict.fromkeys(rows, float("inf"))
    for _ in range(rounds):
        for name, (run, num_blocks, _limit) in rows.items():
            start = time.perf_counter_ns()
            run()
            best[name] = min(best[name], (time.perf_counter_ns() - start) / num_blocks)
    return best


def print_table(rows: dict[str, tuple[Callable[[], Any], int, str]], best: dict[str, float]) -> None:
    print(f"{'':36}{'ns per block':>14}{'x limit':>10}")
    for name, ns in best.items():
        limit = best.get(rows[name][2])
        print(f"{name:36}{ns:14.0f}{f'{ns / limit:.2f}' if limit else '-':>10}")


if __name__ == "__main__":
    main()
