"""A real vLLM engine whose kernels are Triton's, interpreted, with and without the plug-in: each scenario in a process.

The interpreter is slow, so prompts are short. All have their first block in common.
"""

import multiprocessing
from collections import defaultdict
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from interpreted_triton import take_scans_of_gpus  # before vLLM
from mamba1_kernels import take_scans_of_mamba1
from plugin_serving import Offloading, generate_each, start, tokens
from vllm.models.deepseek_v4.cpu import cpu_mla

COMMON_TOKENS = 256
ANSWER_TOKENS = 4


def make_prompts(lengths: list[int]) -> list[list[int]]:
    common = tokens(COMMON_TOKENS, 1)
    return [common + tokens(length - COMMON_TOKENS, length) for length in lengths]


def scenario_computes(model: str, lengths: list[int]) -> dict[str, Any]:
    """Without caches."""
    llm = start(model, None, enable_prefix_caching=False)
    return {"computed": generate_each(llm, make_prompts(lengths), ANSWER_TOKENS)}


def scenario_loads(model: str, transfer: dict[str, Any], lengths: list[int], **options: Any) -> dict[str, Any]:
    """Computed, from memory, and from memory full of zeros; before these, how many tokens were drafted, and how many of
    them were right."""
    llm, prompts = start(model, transfer, **options), make_prompts(lengths)
    below = Offloading(llm)
    report = {"first": generate_each(llm, prompts, ANSWER_TOKENS)}
    below.forget_device()
    report["memory"] = generate_each(llm, prompts, ANSWER_TOKENS)
    counted = {metric.name: getattr(metric, "value", None) for metric in llm.get_metrics()}
    report["drafted"] = [counted.get(f"vllm:spec_decode_num_{name}_tokens") for name in ("draft", "accepted")]
    below.forget_device()
    below.spoil_memory()
    report["zeros"] = generate_each(llm, prompts, ANSWER_TOKENS)
    below.adapter.shutdown()
    return report


def find_no_tile_schedules(builder: object, num_decode_tokens: int) -> dict[str, None]:
    """There are none on a CPU. vLLM 0.32 forgets two kinds of DeepSeek V4's layers."""
    return defaultdict(lambda: None)


SCENARIOS = {"computes": scenario_computes, "loads": scenario_loads}


def serve_scenarios(connection: Connection) -> None:
    """Each is played in a process that forks from this one, which has imported vLLM. None is the answer of one that
    has failed."""
    take_scans_of_gpus()
    take_scans_of_mamba1()
    cpu_mla.DeepseekV4CPUSparseSWAMetadataBuilder.build_tile_scheduler = find_no_tile_schedules
    with suppress(EOFError):
        while True:
            process = multiprocessing.get_context("fork").Process(target=_play, args=(connection, *connection.recv()))
            process.start()
            process.join()
            if process.exitcode:
                connection.send(None)


def _play(connection: Connection, scenario: str, arguments: dict[str, Any]) -> None:
    connection.send(SCENARIOS[scenario](**arguments))
