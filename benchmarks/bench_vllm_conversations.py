"""What of conversations comes back inside vLLM when memory is short: shares of all that could be resumed.

    bench_vllm_conversations.py [--model gemma3] [--memory 512,40,24] [--orders 3] [--lmcache]
                                                                                 in the environment that has vLLM

A tiny model with blocks of 128 (Gemma 3 with two full and five window layers, or the tests' gpt-oss or Qwen3-Next), 24
conversations of 5 turns. Sizes are Gemma 3's; for the others they are in proportion to what a conversation takes. Each
turn is asked in another order, and the device has room for six conversations, so most of what a turn goes on from comes
from memory or is computed again. The ideal is all that a prompt shares with the turn before. Each engine is a process
of its own, and for each order of the turns all engines are asked in turn: vLLM alone, and with the plug-in under each
policy and size. vLLM's own offloading refuses CPUs. `--lmcache` adds LMCache with the same memory (see `lmcache_peer`),
with its defaults, with its watermark for evictions raised so that it fills the memory, and then also with an object of
its own for each kind of layer. In the end it says whether all engines gave the same answers.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lmcache_peer import LMCacheServer, part_from_server, prepare_vllm
from vllm_engines import ENVIRONMENT, kv_transfer

CONVERSATIONS, TURNS = 24, 5
MESSAGE, ANSWER = (120, 260), 24
"""Tokens: from, to; and how many."""
DEVICE = 8 << 20
"""A conversation has ten pages of 128 KiB at its end, of Gemma 3."""
MODELS = {"gemma3": 1.0, "gpt_oss": 0.5, "qwen3_next": 2.4}
"""How much a conversation takes, by Gemma 3's: ten pages of 64 KiB, and nine of 256 KiB and three states as large."""
POLICIES = ("resume_points", "lru")
LMCACHE: dict[str, list[str]] = {
    "LMCache": [],
    "LMCache, full": ["--eviction-trigger-watermark", "0.98", "--eviction-ratio", "0.05"],
    "LMCache, groups": ["--eviction-trigger-watermark", "0.98", "--eviction-ratio", "0.05", "--separate-object-groups"],
}
BLOCK_TOKENS = 128
ALONE = "vLLM alone"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="gemma3")
    parser.add_argument("--memory", default="512,40,24", help="sizes in MiB, for Gemma 3")
    parser.add_argument("--orders", type=int, default=3)
    parser.add_argument("--lmcache", action="store_true")
    asked = parser.parse_args()
    kinds = [*POLICIES, *(LMCACHE if asked.lmcache else ())]
    engines = [(ALONE, 0)] + [(kind, int(size)) for size in asked.memory.split(",") for kind in kinds]
    results: dict[tuple[str, int], list[dict[str, Any]]] = {engine: [] for engine in engines}
    with tempfile.TemporaryDirectory() as folder:
        make_model(f"{folder}/model", asked.model)
        for order in range(asked.orders):
            for policy, mebibytes in engines:
                results[policy, mebibytes].append(in_a_process(folder, asked.model, policy, mebibytes, order))
    for (policy, mebibytes), runs in results.items():
        mean = {name: sum(run[name] for run in runs) / len(runs) for name in runs[0] if name != "answers"}
        shares = ", ".join(f"{run['share']:.1%}" for run in runs)
        line = f"{policy:<15} {mebibytes:4d} MiB  resumed {mean['share']:6.1%} of the ideal ({shares})"
        if mebibytes:
            lru = sum(run["share"] for run in results["lru", mebibytes]) / len(runs)
            line += f"  {mean['share'] / lru:5.2f}x lru"
        if "chunks" in mean:
            line += (
                f"  stored {mean['chunks']:4.0f} chunks, {mean['bytes'] / 1e6:5.1f} MB"
                f"; the prompts' ends need {mean['needed'] / 1e6:.1f} MB, without the last turn's"
                f" {mean['before'] / 1e6:.1f}"
                f"; two chunks apart {mean['sparse'] / 1e6:.1f} for {mean['sparse_share']:.1%}"
            )
        print(line)
    answers = [{run["answers"] for run in runs} for runs in zip(*results.values(), strict=True)]
    print("answers are the same" if all(len(given) == 1 for given in answers) else "ANSWERS DIFFER")


def in_a_process(folder: str, family: str, policy: str, mebibytes: int, order: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--engine", folder, family, policy, str(mebibytes), str(order)],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith("ANSWER "):
            answer: dict[str, Any] = json.loads(line.removeprefix("ANSWER "))
            return answer
    raise SystemExit(f"the engine has ended: {done.stderr[-2000:]}")


# ---- in the engine's process ----------------------------------------------------------------------------------------


def make_model(folder: str, family: str, *, seed: int = 0) -> None:
    import torch
    import transformers

    torch.manual_seed(seed)
    config = gemma3() if family == "gemma3" else config_of_tests(family)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)


def config_of_tests(family: str) -> Any:
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "vllm"))
    from vllm_models import tiny_config

    config = tiny_config(family)
    if family == "gpt_oss":
        config.sliding_window = BLOCK_TOKENS  # gpt-oss's own; LMCache refuses a window that is shorter than a block
    return config


def gemma3() -> Any:
    import transformers

    return transformers.Gemma3TextConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=2048,
        num_hidden_layers=7,
        layer_types=["sliding_attention"] * 3 + ["full_attention"] + ["sliding_attention"] * 2 + ["full_attention"],
        sliding_window=128,
        query_pre_attn_scalar=64,
    )


def serve(folder: str, family: str, policy: str, mebibytes: int, order: int) -> None:
    with way_below(policy, int(mebibytes * MODELS[family])) as transfer:
        llm = make_engine(folder, family, transfer)
        prompts: list[list[list[int]]] = [[] for _ in range(CONVERSATIONS)]
        share, said = share_resumed(llm, random.Random(order), prompts)
        report: dict[str, Any] = {"share": share, "answers": hashlib.sha256(json.dumps(said).encode()).hexdigest()}
        if policy in POLICIES:
            manager = llm.llm_engine.engine_core.engine_core.scheduler.connector.connector_scheduler.manager
            report["needed"] = bytes_of_ends(prompts, manager)
            report["before"] = bytes_of_ends([turns[:-1] for turns in prompts], manager)
            report["sparse"], report["sparse_share"] = two_chunks_apart(prompts, manager)
            report["chunks"] = manager.manager.status().counters["stored"]
            report["bytes"] = bytes_stored(llm)
            manager.shutdown()
        print("ANSWER " + json.dumps(report), flush=True)
        if policy in LMCACHE:
            part_from_server(llm)


@contextmanager
def way_below(policy: str, mebibytes: int) -> Iterator[dict[str, Any] | None]:
    """What keeps this much below the device, as vLLM's settings say it; None for vLLM alone."""
    if policy in LMCACHE:
        prepare_vllm()
        with LMCacheServer(mebibytes << 20, BLOCK_TOKENS, *LMCACHE[policy]) as server:
            yield server.kv_transfer()
    else:
        yield kv_transfer(memory=f"{mebibytes}MiB", policy=policy) if mebibytes else None


def make_engine(folder: str, family: str, transfer: dict[str, Any] | None) -> Any:
    from vllm import LLM

    return LLM(
        model=f"{folder}/model",
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="bfloat16",
        max_model_len=1280,
        max_num_seqs=4,
        max_num_batched_tokens=2048,
        kv_cache_memory_bytes=int(DEVICE * MODELS[family]),
        enable_prefix_caching=True,
        disable_log_stats=False,
        seed=0,
        kv_transfer_config=transfer,
    )


def share_resumed(llm: Any, source: random.Random, prompts: list[list[list[int]]]) -> tuple[float, list[list[int]]]:
    """Of the tokens that prompts share with the turn before; and each conversation as a whole. Adds all prompts to
    `prompts`, by conversation."""
    said: list[list[int]] = [[] for _ in range(CONVERSATIONS)]
    ideal = resumed = 0
    for _ in range(TURNS):
        order = list(range(CONVERSATIONS))
        source.shuffle(order)
        for number in order:
            prompt = said[number] + [source.randrange(4, 512) for _ in range(source.randint(*MESSAGE))]
            prompts[number].append(prompt)
            answer, cached = generate(llm, prompt)
            ideal += len(said[number])
            resumed += cached
            said[number] = prompt + answer
    return resumed / ideal, said


def generate(llm: Any, prompt: list[int]) -> tuple[list[int], int]:
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=ANSWER, ignore_eos=True, detokenize=False)
    (output,) = llm.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)
    return list(output.outputs[0].token_ids), output.num_cached_tokens or 0


def bytes_of_ends(prompts: list[list[list[int]]], manager: Any) -> float:
    """Of all chunks with which a request can resume at the end of one of these prompts."""
    promised, groups = manager._promised, manager._groups  # noqa: SLF001
    needed = {
        (group, tuple(prompt[:end]))
        for turns in prompts
        for prompt in turns
        for group, end in promised.chunks_of_resume(promised.boundary(len(prompt)))
    }
    return float(sum(groups[group].chunk_bytes for group, _ in needed))


def two_chunks_apart(prompts: list[list[list[int]]], manager: Any) -> tuple[float, float]:
    """The bytes, and the share of the ideal that could be resumed, if windows and states were stored only where a
    prompt ends at least two chunks of 128 tokens after the last end for which they were."""
    promised, groups = manager._promised, manager._groups  # noqa: SLF001

    def num_bytes(end: int, *, prefix: bool) -> int:
        chunks = promised.chunks_of_resume(end)
        return sum(groups[group].chunk_bytes for group, _ in chunks if promised.is_prefix[group] is prefix)

    stored = ideal = resumed = 0
    for turns in prompts:
        point = 0
        for number, prompt in enumerate(turns):
            if number:
                ideal += len(turns[number - 1]) + ANSWER
                resumed += point
            end = promised.boundary(len(prompt))
            if end - point >= 256:
                point = end
                stored += num_bytes(point, prefix=False)
        stored += num_bytes(promised.boundary(len(turns[-1])), prefix=True)
    return float(stored), resumed / ideal


def bytes_stored(llm: Any) -> float:
    stored = [metric for metric in llm.get_metrics() if "store_bytes" in metric.name and hasattr(metric, "value")]
    return float(sum(metric.value for metric in stored))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        serve(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
    else:
        main()
