"""A tiny DeepSeek V4 in a real vLLM engine, with and without the plug-in, each in a process of its own.

    deepseek_v4_engine.py SCENARIO '{"model": ..., "transfer": ...}'

Some of vLLM's kernels of this model are Triton's, which is slow here, so prompts are short.
"""

import json
import sys
from collections import defaultdict
from typing import Any

import interpreted_triton  # noqa: F401 - before vLLM
from plugin_serving import Offloading, generate_each, start, tokens
from vllm.models.deepseek_v4.cpu import cpu_mla

PROMPTS = [tokens(280, 1), tokens(256, 1) + tokens(30, 2)]
"""The second goes another way after the first block."""
ANSWER_TOKENS = 8


def scenario_computes(model: str) -> dict[str, Any]:
    """Without caches."""
    llm = start(model, None, enable_prefix_caching=False)
    return {"computed": generate_each(llm, PROMPTS, ANSWER_TOKENS)}


def scenario_loads(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """From memory, from disk, and from memory full of zeros."""
    llm = start(model, transfer)
    below = Offloading(llm)
    report = {"first": generate_each(llm, PROMPTS, ANSWER_TOKENS)}
    below.forget_device()
    report["memory"] = generate_each(llm, PROMPTS, ANSWER_TOKENS)
    below.settle()
    below.lose_memory()
    below.forget_device()
    report["disk"] = generate_each(llm, PROMPTS, ANSWER_TOKENS)
    below.forget_device()
    below.spoil_memory()
    report["zeros"] = generate_each(llm, PROMPTS, ANSWER_TOKENS)
    below.adapter.shutdown()
    return report


def scenario_again(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """The next process, which finds what the first left on disk."""
    llm = start(model, transfer)
    report = {"disk": generate_each(llm, PROMPTS, ANSWER_TOKENS)}
    Offloading(llm).adapter.shutdown()
    return report


def find_no_tile_schedules(builder: object, num_decode_tokens: int) -> dict[str, None]:
    """There are none on a CPU. vLLM 0.32 forgets two kinds of layers."""
    return defaultdict(lambda: None)


SCENARIOS = {"computes": scenario_computes, "loads": scenario_loads, "again": scenario_again}

if __name__ == "__main__":
    cpu_mla.DeepseekV4CPUSparseSWAMetadataBuilder.build_tile_scheduler = find_no_tile_schedules
    print("KNOWN", json.dumps(SCENARIOS[sys.argv[1]](**json.loads(sys.argv[2]))))
