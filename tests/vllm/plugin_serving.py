"""A real vLLM engine with the plug-in, in this process: how it is asked, and what lies below its device."""

import importlib
import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import torch
import vllm_environment  # noqa: F401 - before vLLM
from vllm import LLM, SamplingParams
from vllm.v1.engine import utils as engine_utils
from vllm.v1.executor import multiproc_executor
from vllm.v1.kv_offload.base import ScheduleEndContext
from vllm_models import OWN_MODEL, VOCAB

from octavo.tiers import TierState
from octavo.vllm_plugin.adapter.manager import OctavoManager

torch.set_num_threads(1)  # a vLLM in this process asks for more
# Ranks, and the engine of a server, fork from what has imported vLLM. On a CPU vLLM starts interpreters for them, and
# each imports it for ten seconds.
for module in (multiproc_executor, engine_utils):
    module.get_mp_context = lambda: multiprocessing.get_context("fork")


def start(model: str, transfer: dict[str, Any] | None, **options: Any) -> LLM:
    defaults: dict[str, Any] = {
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "dtype": "bfloat16",
        "max_model_len": 1024,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 1024,
        "kv_cache_memory_bytes": 64 << 20,
        "enable_prefix_caching": True,
        "disable_log_stats": False,
        "seed": 0,
    }
    if OWN_MODEL in (Path(model) / "config.json").read_text():
        importlib.import_module("circular_model").register()
    return LLM(model=model, **(defaults | {"kv_transfer_config": transfer} | options))


def tokens(count: int, seed: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(4, VOCAB) for _ in range(count)]


def generate(
    llm: LLM, prompts: list[list[int]], num_tokens: int = 16, **known: Any
) -> tuple[list[list[int]], list[int]]:
    """All at once: answers, and how many tokens of each prompt were not computed."""
    sampling = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True, detokenize=False)
    outputs = llm.generate([{"prompt_token_ids": p} | known for p in prompts], sampling, use_tqdm=False)
    return [list(o.outputs[0].token_ids) for o in outputs], [o.num_cached_tokens or 0 for o in outputs]


def generate_each(
    llm: LLM, prompts: list[list[int]], num_tokens: int = 16, *, salt: str | None = None
) -> tuple[list[list[int]], list[int]]:
    known = {} if salt is None else {"cache_salt": salt}
    results = [generate(llm, [prompt], num_tokens, **known) for prompt in prompts]
    return [answer for (answer,), _ in results], [cached for _, (cached,) in results]


def is_other(connector: Any) -> bool:
    """Whether it is vLLM's connector with a spec of somebody else's."""
    scheduler = getattr(connector, "connector_scheduler", None)
    return scheduler is not None and not isinstance(scheduler.manager, OctavoManager)


class Offloading:
    """What lies below the device, in this process."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._core = llm.llm_engine.engine_core.engine_core
        connector = self._core.scheduler.connector
        while hasattr(connector, "_connectors"):
            connector = next(part for part in connector._connectors if not is_other(part))
        self._connector = connector.connector_scheduler
        self.adapter = self._connector.manager
        self.manager = self.adapter.manager
        self._still_steps = 0

    def is_stuck(self) -> bool:
        """Asked after each step: requests wait, and for a while nothing has been computed or under way."""
        scheduler = self._core.scheduler
        is_still = (
            not scheduler.running
            and not scheduler.connector.has_pending_push_work()
            and scheduler.has_unfinished_requests()
        )
        self._still_steps = self._still_steps + 1 if is_still else 0
        return self._still_steps > 20

    def counters(self) -> dict[str, int]:
        return dict(self.manager.status().counters)

    def settle(self) -> None:
        """Until what was computed is stored, and on the tiers below."""
        generate(self._llm, [tokens(5, 1)], 2)
        deadline = time.monotonic() + 60
        while self._core.scheduler.connector.has_pending_push_work():
            assert time.monotonic() < deadline, self.manager.status()
            self._core.step()
        self.manager.check_invariants()

    def wait_for_tiers(self) -> None:
        """Until none is off."""
        deadline = time.monotonic() + 60
        while any(tier.state is not TierState.OK for _, tier in self.manager.status().tiers):
            assert time.monotonic() < deadline, self.manager.status()
            self._core.step()
            self.adapter.on_schedule_end(ScheduleEndContext((), ()))

    def leaks(self) -> dict[str, int]:
        """What is held though nobody is served. After this all caches are empty."""
        self._core.step()  # the last request's end is told
        scheduler, connector = self._core.scheduler, self._connector
        held = {
            "requests": len(connector._req_status),
            "jobs": len(connector._jobs),
            "fenced": len(connector._block_id_to_pending_jobs),
            "being loaded": len(connector._chunks_being_loaded),
            **self.adapter.transfers.counts(),
        }
        assert self._core.reset_prefix_cache(reset_connector=True)
        self.settle()
        status, pool = self.manager.status(), scheduler.kv_cache_manager.block_pool
        held["slots"] = status.num_slots - status.free_slots
        held["blocks"] = pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()
        return {name: count for name, count in held.items() if count}

    def forget_device(self) -> None:
        self.settle()
        assert self._llm.reset_prefix_cache()

    def lose_memory(self) -> None:
        """As if others had taken it; what is on the tiers stays."""
        resident = self.manager._resident
        resident.drop(list(resident.index))

    def spoil_memory(self) -> None:
        """All bytes are zeros, and nobody can tell."""
        self.manager.arena.view.fill(0)
        self.adapter._shared._notes.clear()

    def flip_bits(self) -> None:
        """One in each slot."""
        self.manager.arena.view[:, 5] ^= 1
