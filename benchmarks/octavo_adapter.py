"""Octavo's `KVCacheManager` behind the interface of the neutral benchmark of block managers.

It models the layers that vLLM's adapter models, and groups them Octavo's way: the five windows of Gemma 3 are one
group. A layer's page has the same bytes in all configurations, so pools of equal bytes are compared.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from octavo.blocks import KVCacheManager, RequestBlocks, ResumePlan
from octavo.hashing import BlockHasher
from octavo.ids import GroupIdx, Row
from octavo.planning import plan_kv_cache
from octavo.specs import CacheDType, FullAttentionSpec, KVCacheSpec, MambaSpec, RequestLimits, SlidingWindowSpec

PAGE_BYTES = 256
HASHES = {"sha256": "sha256_int32", "sha256_cbor": "sha256_cbor", "xxhash": "xxh3_128"}


def full(block_size: int) -> FullAttentionSpec:
    return FullAttentionSpec(**attention(block_size))


def window(block_size: int, size: int) -> SlidingWindowSpec:
    return SlidingWindowSpec(**attention(block_size), sliding_window=size)


def attention(block_size: int) -> dict[str, Any]:
    return {"block_size": block_size, "num_kv_heads": 1, "head_size": 4, "page_size_padded": None} | (
        {} if block_size == 16 else {"head_size": 1, "dtype": CacheDType.UINT8, "page_size_padded": 5 * PAGE_BYTES}
    )


def mamba(block_size: int) -> MambaSpec:
    page = PAGE_BYTES if block_size == 16 else 5 * PAGE_BYTES
    return MambaSpec(block_size=block_size, shapes=((page // 4,),), dtypes=(CacheDType.FLOAT32,))


CONFIGS: dict[str, tuple[int, Callable[[], list[KVCacheSpec]]]] = {
    "full1": (16, lambda: [full(16)]),
    "gptoss2": (16, lambda: [full(16), window(16, 128)]),
    "gemma6": (16, lambda: [full(16), *[window(16, 1024)] * 5]),
    "mamba2": (16, lambda: [full(16), mamba(16)]),
    "mamba4_528": (528, lambda: [full(528), *[mamba(528)] * 3]),
}


class Adapter:
    name = "octavo"

    def __init__(self, config: str, num_blocks: int, events: bool = False, hash_fn: str = "sha256") -> None:
        self.block_size, specs = CONFIGS[config]
        layers = {f"layers.{i}": spec for i, spec in enumerate(specs())}
        page_bytes = max(spec.page_size_bytes for spec in layers.values())
        plan = plan_kv_cache(
            layers,
            memory_bytes=num_blocks * page_bytes,
            limits=RequestLimits(max_model_len=1 << 20, max_step_tokens=1 << 20),
            hash_block_size=16,
            shorten_context=True,
        )
        hasher = BlockHasher(hash_block_size=16, algorithm=HASHES[hash_fn])
        self.manager = KVCacheManager(plan, hasher=hasher, enable_events=events)
        self.has_events = events
        self.ids = itertools.count()

    def new_request(self, tokens: Sequence[int]) -> RequestBlocks:
        return self.manager.begin_request(f"r{next(self.ids)}", tokens)

    def clone_request(self, request: RequestBlocks) -> RequestBlocks:
        return self.manager.begin_again(request, f"r{next(self.ids)}")

    def lookup(self, request: RequestBlocks) -> tuple[ResumePlan, int]:
        plan = self.manager.find_resume(request)
        return plan, plan.num_tokens

    def allocate(
        self, request: RequestBlocks, new_tokens: int, hit: ResumePlan | None = None, hit_tokens: int = 0
    ) -> object:
        num_tokens = request.num_computed_tokens + hit_tokens + new_tokens
        allocation = self.manager.allocate(request, num_tokens, resume=hit)
        assert allocation is not None
        self.manager.commit(request, num_tokens)
        return allocation

    def block_ids(self, allocation: object) -> object:
        return allocation

    def all_block_ids(self, request: RequestBlocks) -> list[list[Row]]:
        return [table.rows for table in request.tables]

    def append_token(self, request: RequestBlocks, token: int) -> None:
        request.tokens.append(token)

    def batch_step(self, requests: Sequence[RequestBlocks], tokens: Sequence[int]) -> object:
        return self.manager.decode_step(requests, tokens)

    def free(self, request: RequestBlocks) -> None:
        self.manager.free(request)

    def step(self) -> None:
        """A new engine step: nothing to do here."""

    def take_events(self) -> list[Any]:
        if not self.has_events:
            return []
        changes = self.manager.take_changes()
        return [*changes.removed.items(), *changes.stored]

    def num_free(self) -> int:
        return sum(usage.cached_pages + usage.free_pages for usage in self.manager.usage())

    def evict_sparse_groups(self) -> None:
        for index, group in enumerate(self.manager.config.groups):
            if group.kind != "full_attention":
                self.manager.pool.forget_group(GroupIdx(index))
