"""vLLM 0.32's `KVCacheManager` behind the interface of the neutral benchmark of block managers (`compare_managers`)."""

import itertools
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

os.environ.setdefault("PYTHONHASHSEED", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
import torch
from vllm import envs
from vllm.config import VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

HASH_BLOCK_SIZE = 16


def full(block_size: int) -> KVCacheSpec:
    return FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=4, dtype=torch.bfloat16)


def window(block_size: int, size: int) -> KVCacheSpec:
    return SlidingWindowSpec(
        block_size=block_size, num_kv_heads=1, head_size=4, dtype=torch.bfloat16, sliding_window=size
    )


def state(block_size: int) -> KVCacheSpec:
    return MambaSpec(block_size=block_size, shapes=((64,),), dtypes=(torch.float32,), mamba_cache_mode="align")


CONFIGS: dict[str, tuple[int, Callable[[], list[KVCacheSpec]]]] = {
    "full1": (16, lambda: [full(16)]),
    "gptoss2": (16, lambda: [full(16), window(16, 128)]),
    "gemma6": (16, lambda: [full(16), *[window(16, 1024)] * 5]),
    "mamba2": (16, lambda: [full(16), state(16)]),
    "mamba4_528": (528, lambda: [full(528), *[state(528)] * 3]),
}


@cache
def prepare() -> None:
    """What an engine does once when it starts: the registry, and variables of the environment read for good."""
    register_all_kvcache_specs(VllmConfig())
    envs.enable_envs_cache()


class Adapter:
    name = "vLLM 0.32"

    def __init__(self, config: str, num_blocks: int, events: bool = False, hash_fn: str = "sha256") -> None:
        prepare()
        self.block_size, specs = CONFIGS[config]
        groups = [KVCacheGroupSpec([f"layers.{i}"], spec) for i, spec in enumerate(specs())]
        function = get_hash_fn_by_name(hash_fn)
        init_none_hash(function)
        self.hasher = get_request_block_hasher(HASH_BLOCK_SIZE, function)
        self.manager = KVCacheManager(
            KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups),
            max_model_len=1 << 20,
            scheduler_block_size=self.block_size,
            hash_block_size=HASH_BLOCK_SIZE,
            enable_kv_cache_events=events,
        )
        self.sampling = SamplingParams(max_tokens=1 << 20)
        self.ids = itertools.count()

    def new_request(self, tokens: Sequence[int]) -> Request:
        return Request(f"r{next(self.ids)}", list(tokens), self.sampling, None, block_hasher=self.hasher)

    def clone_request(self, request: Request) -> Request:
        twin = Request(f"r{next(self.ids)}", request.prompt_token_ids, self.sampling, None)
        twin.block_hashes = list(request.block_hashes[: request.num_prompt_tokens // HASH_BLOCK_SIZE])
        return twin

    def lookup(self, request: Request) -> tuple[Any, int]:
        blocks, num_tokens, _ = self.manager.get_computed_blocks(request)
        return blocks, num_tokens

    def allocate(self, request: Request, new_tokens: int, hit: Any = None, hit_tokens: int = 0) -> Any:
        blocks = self.manager.allocate_slots(request, new_tokens, hit_tokens, hit)
        assert blocks is not None
        request.num_computed_tokens += hit_tokens + new_tokens
        return blocks

    def block_ids(self, allocation: Any) -> Any:
        return allocation.get_block_ids(allow_none=True)

    def all_block_ids(self, request: Request) -> Any:
        return self.manager.get_block_ids(request.request_id)

    def append_token(self, request: Request, token: int) -> None:
        request.append_output_token_ids(token)

    def free(self, request: Request) -> None:
        self.manager.free(request)

    def step(self) -> None:
        self.manager.new_step_starts()

    def take_events(self) -> list[Any]:
        events: list[Any] = self.manager.take_events()
        return events

    def num_free(self) -> int:
        num_free: int = self.manager.block_pool.get_num_free_blocks()
        return num_free

    def evict_sparse_groups(self) -> None:
        """Nothing but the first group, which is full attention, stays cached."""
        blocks = self.manager.block_pool.blocks
        self.manager.evict_blocks({b.block_id for b in blocks if b.block_hash and b.block_hash[-1]})
