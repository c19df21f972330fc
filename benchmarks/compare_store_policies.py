"""When to store: what each policy resumes, writes and takes, on conversations that do not fit the device.

    python benchmarks/compare_store_policies.py

Tiny models of three kinds, a pool for two conversations, a memory tier that holds all or a part of what is computed.
Rounds of the policies alternate; the best time of each counts. The ratio is to `at_boundaries`.
"""

import tempfile
from pathlib import Path
from time import perf_counter

import torch
from transformers.utils import logging

from octavo.engine import Engine, demo, offload_maker, save_tiny_model
from octavo.offload import OffloadConfig, StorePolicy

ROUNDS = 3
MODELS = ("llama", "gemma3", "qwen3_next")
MEMORY = ("64MiB", "512KiB")


def serve(model: Path, pool_bytes: int, memory: str, policy: StorePolicy) -> tuple[float, dict[str, int], int]:
    """Seconds, tokens resumed by medium, bytes stored."""
    config = demo.engine_config(model, pool_bytes)
    tiers = OffloadConfig.from_mapping({"memory": memory, "store": policy.value})
    engine = Engine.from_config(config, make_offload=offload_maker(config, tiers))
    result = demo.ModeResult(kind="", mode="")
    began = perf_counter()
    for conversation in demo.conversations(engine.vocab_size):
        demo.answer(engine, conversation, result)
    seconds = perf_counter() - began
    demo.count(engine, result)
    engine.close()
    return seconds, result.resumed, result.bytes_stored


def main() -> None:
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            model = Path(folder) / name
            save_tiny_model(name, model)
            pool_bytes = demo.pool_bytes(model)
            for memory in MEMORY:
                best: dict[StorePolicy, float] = {}
                seen = {}
                for _ in range(ROUNDS):
                    for policy in StorePolicy:
                        seconds, *seen[policy] = serve(model, pool_bytes, memory, policy)
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
