"""What share of prompt tokens a tier lets requests resume, by eviction policy: a replay of a request trace.

    python benchmarks/replay_policies.py TRACE [--parts 1 5 8] [--window 1024] [--block-size 512]
                                         [--footprint 0.01 0.05 0.1] [--requests N]

A line of the trace is a request: {"timestamp", "input_length", "output_length", "hash_ids": one id for each block of
the prompt}. The model is a hybrid: a block weighs so many parts in full attention, so many in sliding windows, and a
checkpoint of state so many. The footprint is what all groups' chunks of all blocks of the trace weigh together.

Rows:
    lru, all chunks        windows and states of every block are stored
    lru, promised          windows and states only where a writer promises: at the prompt's end, and where a prompt
                           leaves a chain whose attention is there
    arc, resume_points     the same writer
    hindsight              knows the future: each request asks for the longest prefix that was ever computed before;
                           whether that is kept from the last time it was computed until then is decided greedily, the
                           most tokens per part and time first, as long as everything that is kept at any time fits.
                           Attention that two kept prefixes share is charged to both, so the optimum is a bit higher
    no limit               every prefix that was computed before

The resume is found by `octavo.specs.longest_resume`, over what the tier has.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from octavo.chunks import GroupOffloadConfig, OffloadKey, PromisedPoint, StoredChunk, make_offload_key
from octavo.ids import BlockHash
from octavo.policies import EvictionPolicy, make_policy
from octavo.specs import (
    CacheDType,
    FullAttentionSpec,
    GroupAvailability,
    MambaSpec,
    ResumePoint,
    SlidingWindowSpec,
    longest_resume,
)


@dataclass(frozen=True, slots=True)
class Request:
    num_tokens: int
    hashes: Sequence[BlockHash]
    """Of its full blocks."""


@dataclass(frozen=True, slots=True)
class Geometry:
    groups: Sequence[GroupOffloadConfig]
    """Attention, windows, state."""
    parts: Sequence[int]
    block_size: int

    def last_boundary(self, request: Request) -> int:
        return (request.num_tokens - 1) // self.block_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--parts", type=int, nargs=3, default=(1, 5, 8), metavar=("ATTENTION", "WINDOWS", "STATE"))
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--block-size", type=int, default=512)
    parser.add_argument("--footprint", type=float, nargs="+", default=(0.01, 0.05, 0.1))
    parser.add_argument("--requests", type=int, help="only the first so many")
    args = parser.parse_args()

    geometry = make_geometry(args.parts, args.window, args.block_size)
    requests = read_trace(args.trace, args.block_size)[: args.requests]
    num_tokens = sum(request.num_tokens for request in requests)
    blocks = {block_hash for request in requests for block_hash in request.hashes}
    footprint = len(blocks) * sum(args.parts)
    print(f"{len(requests)} requests, {num_tokens:,} prompt tokens, {len(blocks):,} blocks, {footprint:,} parts")

    rows: dict[str, Callable[[int], int]] = {
        "lru, all chunks": lambda slots: replay("lru", requests, geometry, slots, stores_all=True),
        "lru, promised": lambda slots: replay("lru", requests, geometry, slots),
        "arc, promised": lambda slots: replay("arc", requests, geometry, slots),
        "resume_points": lambda slots: replay("resume_points", requests, geometry, slots),
        "hindsight": lambda slots: hindsight(requests, geometry, slots),
        "no limit": lambda _slots: sum(end for _start, _stop, end in reuses(requests, geometry)) * args.block_size,
    }
    print(f"{'':20}" + "".join(f"{f'{share:.0%} of it':>12}" for share in args.footprint) + f"{'us/request':>14}")
    for name, run in rows.items():
        start = time.thread_time()
        shares = [run(int(footprint * share)) / num_tokens for share in args.footprint]
        took_us = (time.thread_time() - start) / len(shares) / len(requests) * 1e6
        print(f"{name:20}" + "".join(f"{share:12.1%}" for share in shares) + f"{took_us:14.0f}", flush=True)


def make_geometry(parts: Sequence[int], window: int, block_size: int) -> Geometry:
    specs = (
        FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=8),
        SlidingWindowSpec(block_size=block_size, num_kv_heads=1, head_size=8, sliding_window=window),
        MambaSpec(block_size=block_size, shapes=((8, 8),), dtypes=(CacheDType.FLOAT32,)),
    )
    return Geometry(
        [GroupOffloadConfig(spec=s, blocks_per_chunk=1, page_size_bytes=s.page_size_bytes) for s in specs],
        parts,
        block_size,
    )


def read_trace(path: Path, block_size: int) -> list[Request]:
    requests = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        num_tokens = record["input_length"]
        # A digest's first byte is as good as random; an id's is not.
        hashes = [
            BlockHash((id_ * 0x9E3779B97F4A7C15 % (1 << 64)).to_bytes(8, "big"))
            for id_ in record["hash_ids"][: num_tokens // block_size]
        ]
        requests.append(Request(num_tokens, hashes))
    return requests


# ---- online -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Presence:
    """What a tier has of one group of one request, as `longest_resume` asks for it."""

    keys: Sequence[OffloadKey]
    present: set[OffloadKey]

    def first_missing(self, start: int, stop: int) -> int:
        return next((k for k in range(start, stop) if self.keys[k] not in self.present), stop)

    def last_available(self, stop: int) -> int:
        return next((k for k in range(stop - 1, -1, -1) if self.keys[k] in self.present), -1)


class Tier:
    """Slots, the chunks in them, and a policy."""

    def __init__(self, policy: EvictionPolicy, geometry: Geometry, num_slots: int) -> None:
        self.policy = policy
        self.geometry = geometry
        self.num_free = num_slots
        self.present: set[OffloadKey] = set()

    def serve(self, request: Request, *, stores_all: bool) -> int:
        """Resumes, computes and stores one prompt. The tokens resumed."""
        keys = [[make_offload_key(h, g) for h in request.hashes] for g in range(len(self.geometry.groups))]
        presences = [Presence(group_keys, self.present) for group_keys in keys]
        resumed = longest_resume(
            [GroupAvailability(spec=g.spec, blocks=p) for g, p in zip(self.geometry.groups, presences, strict=True)],
            ResumePoint(request.num_tokens),
        ).num_tokens
        if resumed:
            self.policy.touch([key for _, _, key in self._needed(keys, resumed)])
        end = self.geometry.last_boundary(request)
        shared = presences[0].first_missing(0, end)  # as far as attention is there, another prompt went this way
        promised = [n * self.geometry.block_size for n in sorted({end, shared}) if n]
        if stores_all:
            wanted = [(g, k, key) for g, group_keys in enumerate(keys) for k, key in enumerate(group_keys)]
        else:
            wanted = [(0, k, key) for k, key in enumerate(keys[0])]
            wanted += dict.fromkeys(need for n in promised for need in self._needed(keys, n) if need[0])
        if self._store(wanted, keys):
            for n in promised:
                self.policy.promise(PromisedPoint(n, request.hashes[n // self.geometry.block_size - 1]))
        return resumed

    def _needed(self, keys: Sequence[Sequence[OffloadKey]], num_tokens: int) -> list[tuple[int, int, OffloadKey]]:
        return [
            (g, k, keys[g][k])
            for g, group in enumerate(self.geometry.groups)
            for needed in group.spec.needed_blocks(ResumePoint(num_tokens))
            for k in needed
        ]

    def _store(self, wanted: Sequence[tuple[int, int, OffloadKey]], keys: Sequence[Sequence[OffloadKey]]) -> bool:
        chunks = [
            StoredChunk(key, self.geometry.parts[g], k, keys[g][k - 1] if k else None)
            for g, k, key in wanted
            if key not in self.present
        ]
        there = [key for _, _, key in wanted if key in self.present]
        self.policy.pin(there)
        missing = sum(chunk.num_slots for chunk in chunks) - self.num_free
        victims = self.policy.evict(missing) if missing > 0 else []
        self.policy.unpin(there)
        if victims is None:
            return False
        self.present.difference_update(victims)
        self.num_free += sum(self.geometry.parts[key[-1]] for key in victims)
        self.policy.insert(chunks)
        self.present.update(chunk.key for chunk in chunks)
        self.num_free -= sum(chunk.num_slots for chunk in chunks)
        return True


def replay(
    name: str, requests: Sequence[Request], geometry: Geometry, num_slots: int, *, stores_all: bool = False
) -> int:
    """Tokens resumed with a tier of so many slots, a part each."""
    tier = Tier(make_policy(name, geometry.groups, num_slots), geometry, num_slots)
    return sum(tier.serve(request, stores_all=stores_all) for request in requests)


# ---- offline ------------------------------------------------------------------------------------------------------


def reuses(requests: Sequence[Request], geometry: Geometry) -> list[tuple[int, int, int]]:
    """For each request that shares a prefix with a former one: the request that computed it last, the request, and the
    blocks of the longest such prefix."""
    last_computed: dict[BlockHash, int] = {}
    found = []
    for index, request in enumerate(requests):
        end = geometry.last_boundary(request)
        shared = next((k for k in range(end) if request.hashes[k] not in last_computed), end)
        if shared:
            found.append((last_computed[request.hashes[shared - 1]], index, shared))
        last_computed |= dict.fromkeys(request.hashes, index)
    return found


def hindsight(requests: Sequence[Request], geometry: Geometry, num_slots: int) -> int:
    """Tokens resumed by a greedy choice of what to keep when (see above)."""

    def slots_of(end: int) -> int:
        point = ResumePoint(end * geometry.block_size)
        return sum(
            parts * sum(map(len, group.spec.needed_blocks(point)))
            for parts, group in zip(geometry.parts, geometry.groups, strict=True)
        )

    def density(reuse: tuple[int, int, int]) -> float:
        start, stop, end = reuse
        return end / (slots_of(end) * (stop - start))

    free = np.full(len(requests), num_slots)
    blocks = 0
    for start, stop, end in sorted(reuses(requests, geometry), key=density, reverse=True):
        if free[start:stop].min() >= slots_of(end):
            free[start:stop] -= slots_of(end)
            blocks += end
    return blocks * geometry.block_size


if __name__ == "__main__":
    main()
