"""When to store: what each policy resumes, writes and takes, on conversations that do not fit the device.

    python benchmarks/compare_store_policies.py

Tiny models of three kinds, a pool for two conversations, a memory tier that holds all or a part of what is computed.
Rounds of the policies alternate; the best time of each counts. The ratio is to `at_boundaries`.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from transformers.utils import logging

from octavo.engine import (
    CacheGeometry,
    Engine,
    EngineConfig,
    SamplingParams,
    load_model,
    offload_maker,
    save_tiny_model,
)
from octavo.errors import NotEnoughMemoryError
from octavo.offload import OffloadConfig, StorePolicy
from octavo.planning import plan_kv_cache
from octavo.specs import RequestLimits

ROUNDS = 3
MODELS = ("llama", "gemma3", "qwen3_next")
MEMORY = ("64MiB", "512KiB")
NUM_CONVERSATIONS = 5
NUM_TURNS = 3
QUESTION_TOKENS = 100
MAX_MODEL_LEN = 384
MAX_STEP_TOKENS = 256
STATE_BLOCK_SIZE = 64


def serve(model: Path, pool_bytes: int, memory: str, policy: StorePolicy) -> tuple[float, dict[str, int], int]:
    """Seconds, tokens resumed by medium, bytes stored."""
    config = EngineConfig(
        model=model,
        device_memory_bytes=pool_bytes,
        max_model_len=MAX_MODEL_LEN,
        max_step_tokens=MAX_STEP_TOKENS,
        max_num_seqs=8,
        state_block_size=STATE_BLOCK_SIZE,
    )
    tiers = OffloadConfig.from_mapping({"memory": memory, "store": policy.value})
    engine = Engine.from_config(config, make_offload=offload_maker(config, tiers))
    params = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
    began = perf_counter()
    for turn, conversation in enumerate(conversations(engine.vocab_size)):
        engine.add_request(f"turn {turn}", conversation, params)
        while engine.has_unfinished:
            for output in engine.step():
                conversation.extend(output.token_ids)
    seconds = perf_counter() - began
    resumed, stats = engine.snapshot().counters.tokens_resumed, engine.offload_stats()
    engine.close()
    assert stats is not None
    return seconds, resumed, stats.stored_bytes


def conversations(vocab_size: int) -> Iterator[list[int]]:
    """Each conversation again and again, one turn longer each time; by then others have used the device, mostly."""
    random = np.random.default_rng(7)
    histories: list[list[int]] = [[] for _ in range(NUM_CONVERSATIONS)]
    for _ in range(NUM_TURNS):
        for index in random.permutation(NUM_CONVERSATIONS):
            histories[index] += random.integers(3, vocab_size, QUESTION_TOKENS).tolist()
            yield histories[index]


def bytes_for_two(model: Path) -> int:
    """Room for two conversations at their longest."""
    specs = load_model(model).kv_cache_specs(CacheGeometry(attention_block_size=16, state_block_size=STATE_BLOCK_SIZE))
    limits = RequestLimits(max_model_len=MAX_MODEL_LEN, max_step_tokens=MAX_STEP_TOKENS)
    memory_bytes = 64 << 10
    while True:
        try:
            plan_kv_cache(specs, memory_bytes=memory_bytes, limits=limits)
        except NotEnoughMemoryError:
            memory_bytes += memory_bytes // 8
        else:
            return memory_bytes * 2


def main() -> None:
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            model = Path(folder) / name
            save_tiny_model(name, model)
            pool_bytes = bytes_for_two(model)
            for memory in MEMORY:
                best: dict[StorePolicy, float] = {}
                seen: dict[StorePolicy, tuple[dict[str, int], int]] = {}
                for _ in range(ROUNDS):
                    for policy in StorePolicy:
                        seconds, resumed, stored = serve(model, pool_bytes, memory, policy)
                        seen[policy] = resumed, stored
                        best[policy] = min(best.get(policy, seconds), seconds)
                print(f"{name}, {memory} of memory")
                for policy in StorePolicy:
                    resumed, stored = seen[policy]
                    ratio = best[policy] / best[StorePolicy.AT_BOUNDARIES]
                    print(
                        f"  {policy.value:14} resumed {sum(resumed.values()):6,} tokens, {resumed.get('memory', 0):6,} "
                        f"from memory   stored {stored / 1024:7,.0f} KiB   {best[policy]:5.2f} s   {ratio:4.2f}x"
                    )


if __name__ == "__main__":
    main()
