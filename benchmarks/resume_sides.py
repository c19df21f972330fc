"""vLLM's `KVCacheManager` and Octavo's behind one small interface, for the comparison of resume lengths.

A step computes one request's tokens and is committed before the next: what one request computes, the next one finds.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from octavo.blocks import KVCacheManager, RequestBlocks, ResumePlan
from octavo.planning import KVCacheConfig

sys.path.append(str(Path(__file__).parents[1] / "tests" / "vllm"))
from real_vllm import to_vllm


class Side(Protocol):
    """One manager. Requests are opaque; lengths are in tokens."""

    def start(self, request_id: str, tokens: Sequence[int]) -> int:
        """A request arrives and looks its prompt up; returns where it resumes. It holds nothing yet."""

    def next_end(self, request_id: str, num_tokens: int) -> int:
        """Where a chunk up to `num_tokens` must end at the latest; not beyond the request's computed tokens if it
        cannot advance."""

    def compute(self, request_id: str, num_tokens: int) -> None:
        """Allocates for and computes tokens up to `num_tokens`, the resume included."""

    def num_known(self, request_id: str) -> int: ...

    def num_computed(self, request_id: str) -> int:
        """The resume that it has not taken up yet included."""

    def append(self, request_id: str, token: int) -> None: ...

    def preempt(self, request_id: str) -> int:
        """The request gives up its blocks and looks up again; returns where it resumes."""

    def end(self, request_id: str) -> None: ...


class OutOfBlocksError(Exception):
    """The traffic holds more than the pool: the comparison's own mistake."""


class OctavoSide:
    def __init__(self, plan: KVCacheConfig) -> None:
        self.manager = KVCacheManager(plan, enable_events=True)
        self.requests: dict[str, RequestBlocks] = {}
        self.resumes: dict[str, ResumePlan] = {}
        self.ever_stored: list[set[bytes]] = [set() for _ in plan.groups]
        """By group: hashes that were in the index at some time."""

    def start(self, request_id: str, tokens: Sequence[int]) -> int:
        self.requests[request_id] = self.manager.begin_request(request_id, tokens)
        return self._look_up(request_id)

    def next_end(self, request_id: str, num_tokens: int) -> int:
        return self.manager.cut_prefill(self.requests[request_id], num_tokens, self.resumes.get(request_id))

    def compute(self, request_id: str, num_tokens: int) -> None:
        request = self.requests[request_id]
        if self.manager.allocate(request, num_tokens, resume=self.resumes.get(request_id)) is None:
            raise OutOfBlocksError("Octavo")
        self.resumes.pop(request_id, None)
        self.manager.commit(request, num_tokens)
        for run in self.manager.take_changes().stored:
            self.ever_stored[run.group_idx].update(run.hashes)

    def num_known(self, request_id: str) -> int:
        return self.requests[request_id].num_tokens

    def num_computed(self, request_id: str) -> int:
        resume = self.resumes.get(request_id)
        return resume.num_tokens if resume is not None else self.requests[request_id].num_computed_tokens

    def append(self, request_id: str, token: int) -> None:
        self.manager.append_tokens(self.requests[request_id], [token])

    def preempt(self, request_id: str) -> int:
        self.manager.preempt(self.requests[request_id])
        return self._look_up(request_id)

    def end(self, request_id: str) -> None:
        self.manager.free(self.requests.pop(request_id))
        self.resumes.pop(request_id, None)
        for run in self.manager.take_changes().stored:
            self.ever_stored[run.group_idx].update(run.hashes)

    def _look_up(self, request_id: str) -> int:
        self.resumes[request_id] = self.manager.find_resume(self.requests[request_id])
        return self.resumes[request_id].num_tokens


@dataclass(slots=True)
class _VllmRequest:
    request: Any
    blocks: Any = None
    num_hit_tokens: int = 0


class VllmSide:
    """vLLM 0.32's manager, as its scheduler calls it, with one group for each layer of an Octavo plan.

    `num_blocks` is without the null block. `lets_windows_go_at_once`: what falls out of a window is let go at the end
    of the step, as Octavo does, and not when the request's next step begins.
    """

    def __init__(
        self,
        plan: KVCacheConfig,
        *,
        num_blocks: int,
        retention_interval: int | None = None,
        lets_windows_go_at_once: bool = False,
    ) -> None:
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_manager import KVCacheManager as VllmManager
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.kv_cache_interface import (
            ChunkedLocalAttentionSpec,
            KVCacheConfig as VllmConfig,
            KVCacheGroupSpec,
            SlidingWindowSpec,
        )

        register_specs()
        init_none_hash(sha256)
        groups = [
            KVCacheGroupSpec([name], to_vllm(spec), is_eagle_group=group.is_draft)
            for group in plan.groups
            for name, spec in group.spec.specs.items()
        ]
        uses_eagle = any(group.is_draft for group in plan.groups)
        self.has_state = any(group.spec.holds_checkpoints for group in plan.groups)
        self.block_size, self.hash_block_size = plan.resume_granularity, plan.hash_block_size
        self.hasher = get_request_block_hasher(plan.hash_block_size, sha256)
        self.drop = self.block_size if uses_eagle else 0
        self.manager = VllmManager(
            VllmConfig(
                num_blocks=num_blocks + 1,
                kv_cache_tensors=[],
                kv_cache_groups=groups,
                prefix_cache_retention_interval=retention_interval,
            ),
            max_model_len=plan.limits.max_model_len,
            scheduler_block_size=plan.resume_granularity,
            hash_block_size=plan.hash_block_size,
            use_eagle=uses_eagle,
        )
        self.lets_windows_go_at_once = lets_windows_go_at_once
        self.window_managers = [
            manager
            for group, manager in zip(groups, self.manager.coordinator.single_type_managers, strict=True)
            if isinstance(group.kv_cache_spec, SlidingWindowSpec | ChunkedLocalAttentionSpec)
        ]
        self.resumes_inside_blocks = getattr(self.manager.coordinator, "enable_partial_hash_hits", False)
        self.requests: dict[str, _VllmRequest] = {}

    def start(self, request_id: str, tokens: Sequence[int]) -> int:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        self.requests[request_id] = _VllmRequest(
            Request(request_id, list(tokens), SamplingParams(max_tokens=1000), None, block_hasher=self.hasher)
        )
        return self._look_up(request_id)

    def next_end(self, request_id: str, num_tokens: int) -> int:
        """Like vLLM's scheduler with recurrent state: chunks end at blocks, at the last block and hash block of the
        prompt, and where another request left the prefix."""
        request = self.requests[request_id].request
        at, block = self.num_computed(request_id), self.block_size
        if not self.has_state or at >= request.num_prompt_tokens:
            return num_tokens
        known = request.num_tokens if self.drop else request.num_tokens - 1
        stops = [known // block * block - self.drop]
        if at % block:
            stops.append((at // block + 1) * block)
        if self.resumes_inside_blocks:
            prompt = request.num_prompt_tokens if self.drop else request.num_prompt_tokens - 1
            tail = prompt // self.hash_block_size * self.hash_block_size
            stops.append(tail - self.hash_block_size if self.drop else tail)
        stops.append(at + (request.shared_prefix_boundary - at) // block * block)
        if num_tokens < request.num_tokens:
            num_tokens = num_tokens // block * block
        return min((stop for stop in stops if at < stop < num_tokens), default=num_tokens)

    def compute(self, request_id: str, num_tokens: int) -> None:
        held = self.requests[request_id]
        self.manager.new_step_starts()
        num_new = num_tokens - held.request.num_computed_tokens - held.num_hit_tokens
        if self.manager.allocate_slots(held.request, num_new, held.num_hit_tokens, held.blocks) is None:
            raise OutOfBlocksError("vLLM")
        held.request.num_computed_tokens = num_tokens
        _, copied = self.manager.take_kv_cache_block_copies()
        self.manager.block_pool.free_blocks(copied)  # they are held until the worker has made the copies
        held.blocks, held.num_hit_tokens = None, 0
        if self.lets_windows_go_at_once:
            for group in self.window_managers:
                group.remove_skipped_blocks(request_id, num_tokens)

    def num_known(self, request_id: str) -> int:
        num_tokens: int = self.requests[request_id].request.num_tokens
        return num_tokens

    def num_computed(self, request_id: str) -> int:
        held = self.requests[request_id]
        return int(held.request.num_computed_tokens) + held.num_hit_tokens

    def append(self, request_id: str, token: int) -> None:
        self.requests[request_id].request.append_output_token_ids(token)

    def preempt(self, request_id: str) -> int:
        held = self.requests[request_id]
        self.manager.free(held.request)
        held.request.num_computed_tokens = 0
        return self._look_up(request_id)

    def end(self, request_id: str) -> None:
        self.manager.free(self.requests.pop(request_id).request)

    def _look_up(self, request_id: str) -> int:
        held = self.requests[request_id]
        held.blocks, held.num_hit_tokens, held.request.shared_prefix_boundary = self.manager.get_computed_blocks(
            held.request
        )
        return held.num_hit_tokens


@cache
def register_specs() -> None:
    """vLLM fills its registry when an engine starts; here that is once for the process."""
    from vllm.config import VllmConfig
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs

    register_all_kvcache_specs(VllmConfig())
