"""A real vLLM engine with the plug-in, in a process of its own: plays a scenario, and prints what came of it as JSON.

    plugin_engine.py SCENARIO '{"family": "llama", ...}'

Prompts are served one at a time where outputs are compared: in bfloat16, what shares a batch decides how sums are
rounded.
"""

import errno
import json
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import engine_process as engine  # sets vLLM up before it is imported
import tokenizers
import torch
import transformers
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.distributed.kv_transfer import ensure_kv_transfer_shutdown
from vllm.v1.kv_offload.base import ScheduleEndContext

from octavo.errors import OctavoError
from octavo.offload.tiers.base import TierState

# One thread: tiny operations end sooner than two threads meet, and on a busy machine these wait for each other in each.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # of ranks in processes of their own

VOCAB = 512
PROMPT_TOKENS = 520
"""A little more than four blocks, so that the answer depends on what was loaded."""


def tiny_config(family: str) -> transformers.PretrainedConfig:
    match family:
        case "llama":
            return transformers.LlamaConfig(**engine.COMMON, num_hidden_layers=4)
        case "gpt_oss":
            return transformers.GptOssConfig(
                **{**engine.COMMON, "intermediate_size": 64},
                num_hidden_layers=4,
                num_local_experts=4,
                num_experts_per_tok=2,
                sliding_window=64,
                layer_types=["sliding_attention", "full_attention"] * 2,
            )
        case "qwen3_5":
            return transformers.Qwen3_5TextConfig(
                **{**engine.COMMON, "head_dim": 128, "num_key_value_heads": 4},
                num_hidden_layers=4,
                layer_types=["linear_attention"] * 3 + ["full_attention"],
                linear_conv_kernel_dim=4,
                linear_key_head_dim=128,
                linear_value_head_dim=128,
                linear_num_key_heads=1,
                linear_num_value_heads=2,
            )
        case "deepseek_v2":
            return transformers.DeepseekV2Config(
                **{**engine.COMMON, "num_key_value_heads": 4},
                num_hidden_layers=4,
                kv_lora_rank=512,
                q_lora_rank=None,
                qk_rope_head_dim=64,
                qk_nope_head_dim=128,
                v_head_dim=128,
                n_routed_experts=4,
                n_shared_experts=1,
                num_experts_per_tok=2,
                moe_intermediate_size=32,
                first_k_dense_replace=1,
                n_group=1,
                topk_group=1,
                topk_method="greedy",
            )
    return engine.tiny_config(family)


def make_model(family: str, folder: Path, seed: int = 0) -> Path:
    """Weights that are large enough for an answer to depend on the whole prompt."""
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(tiny_config(family), dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2 and "norm" not in name:
                parameter.normal_(0, 0.15)
    model.to(torch.bfloat16).save_pretrained(folder)
    words = {"<unk>": 0, "<s>": 1, "</s>": 2, "<pad>": 3} | {f"w{i}": i for i in range(4, VOCAB)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    ).save_pretrained(folder)
    return folder


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
    return LLM(model=model, **(defaults | {"kv_transfer_config": transfer} | options))


def tokens(count: int, seed: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(4, VOCAB) for _ in range(count)]


def generate(llm: LLM, prompts: list[list[int]], num_tokens: int = 16) -> tuple[list[list[int]], list[int]]:
    """All at once: answers, and how many tokens of each prompt were not computed."""
    sampling = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True, detokenize=False)
    outputs = llm.generate([{"prompt_token_ids": p} for p in prompts], sampling, use_tqdm=False)
    return [list(o.outputs[0].token_ids) for o in outputs], [o.num_cached_tokens or 0 for o in outputs]


def generate_each(llm: LLM, prompts: list[list[int]], num_tokens: int = 16) -> tuple[list[list[int]], list[int]]:
    results = [generate(llm, [prompt], num_tokens) for prompt in prompts]
    return [answer for (answer,), _ in results], [cached for _, (cached,) in results]


class Offloading:
    """What lies below the device, in this process."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._core = llm.llm_engine.engine_core.engine_core
        self.adapter = self._core.scheduler.connector.connector_scheduler.manager
        self.manager = self.adapter.manager

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
        scheduler, connector = self._core.scheduler, self._core.scheduler.connector.connector_scheduler
        held = {
            "requests": len(connector._req_status),
            "jobs": len(connector._jobs),
            "fenced": len(connector._block_id_to_pending_jobs),
            "being loaded": len(connector._chunks_being_loaded),
            "loads": len(self.adapter._loads),
            "stores": len(self.adapter._stores),
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
        resident.drop([key for shard in resident.index.shards for key in shard])

    def spoil_memory(self) -> None:
        self.manager.arena.view.fill(0)


def scenario_loads(model: str, transfer: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The same prompts by vLLM's own hits, from memory, longer by a turn, from disk, and from memory full of zeros."""
    llm = start(model, transfer, **options)
    below = Offloading(llm)
    report, answers = serve_from_memory(llm, below)
    prompts = report["prompts"]
    turns = [p + answer + tokens(130, 50 + i) for i, (p, answer) in enumerate(zip(prompts, answers, strict=True))]
    generate_each(llm, turns)
    report["turn_local"] = generate_each(llm, turns)
    below.forget_device()
    report["turn_memory"] = generate_each(llm, turns)
    for seed in range(100, 112):  # others take the memory
        generate_each(llm, [tokens(PROMPT_TOKENS, seed)], 1)
        below.settle()
    return serve_from_below(llm, below, report)


def scenario_ranks(model: str, transfer: dict[str, Any], **options: Any) -> dict[str, Any]:
    """As `loads`, in short."""
    llm = start(model, transfer, **options)
    below = Offloading(llm)
    report, _ = serve_from_memory(llm, below)
    below.settle()
    below.lose_memory()
    return serve_from_below(llm, below, report)


def serve_from_memory(llm: LLM, below: "Offloading") -> tuple[dict[str, Any], list[list[int]]]:
    """The report so far, and the answers."""
    prompts = make_prompts(3)
    answers, first_cached = generate_each(llm, prompts)
    report: dict[str, Any] = {"prompts": prompts, "first_cached": first_cached}
    report["local"] = generate_each(llm, prompts)
    below.forget_device()
    report["memory"] = generate_each(llm, prompts)
    return report, answers


def serve_from_below(llm: LLM, below: "Offloading", report: dict[str, Any]) -> dict[str, Any]:
    promoted = below.counters()["promoted"]
    below.forget_device()
    report["disk"] = generate_each(llm, report["prompts"])
    report["promoted"] = below.counters()["promoted"] - promoted
    below.forget_device()
    below.spoil_memory()
    report["zeros"] = generate_each(llm, report["prompts"])
    below.adapter.shutdown()
    return report


def make_prompts(count: int) -> list[list[int]]:
    return [tokens(PROMPT_TOKENS, seed) for seed in range(10, 10 + count)]


def scenario_again(model: str, transfer: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Another process: what it finds of the first one's."""
    llm = start(model, transfer, **options)
    below = Offloading(llm)
    prompts = make_prompts(3)
    report = {"prompts": prompts, "disk": generate_each(llm, prompts)}
    report["counters"] = below.counters()
    below.adapter.shutdown()
    return report


def scenario_strangers(model: str, other_model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """Engines one after the other over the same disk, none of which may know another's chunks: what each finds, and
    whether what it stores itself comes back."""
    variants: dict[str, tuple[str, dict[str, Any], str]] = {
        "the first": (model, {}, "0"),
        "other weights": (other_model, {}, "0"),
        "other dtype": (model, {"dtype": "float32"}, "0"),
        "other block size": (model, {"block_size": 64}, "0"),
        "other hash seed": (model, {}, "1"),
        "the first again": (model, {}, "0"),
    }
    return {name: meet(*variant, transfer) for name, variant in variants.items()}


def meet(model: str, options: dict[str, Any], seed: str, transfer: dict[str, Any]) -> dict[str, Any]:
    os.environ["PYTHONHASHSEED"] = seed
    llm = start(model, transfer, **options)
    below = Offloading(llm)
    prompts = make_prompts(2)
    report: dict[str, Any] = {"found": generate_each(llm, prompts), "local": generate_each(llm, prompts)}
    report["promoted"] = below.counters()["promoted"]
    below.forget_device()
    report["memory"] = generate_each(llm, prompts)
    below.adapter.shutdown()
    llm.llm_engine.engine_core.shutdown()
    del llm, below
    cleanup_dist_env_and_memory()
    return report


def scenario_refused(model: str, transfers: list[dict[str, Any]], transfer: dict[str, Any]) -> dict[str, Any]:
    """What engines with wrong configurations say; and after them a right one serves."""
    said = []
    for wrong in transfers:
        try:
            start(model, wrong)
        except OctavoError as error:
            said.append(f"{type(error).__name__}: {error}")
        ensure_kv_transfer_shutdown()
        cleanup_dist_env_and_memory()
    return {"said": said, **meet(model, {}, "0", transfer)}


def scenario_salts(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """Tokens of one prompt that come from memory: with a salt, with the same one, another one, and none."""
    llm = start(model, transfer)
    below = Offloading(llm)
    prompt = tokens(PROMPT_TOKENS, 10)
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, detokenize=False)
    found, answers = [], []
    for salt in ("a", "a", "b", None):
        below.forget_device()
        given = {"prompt_token_ids": prompt} | ({"cache_salt": salt} if salt else {})
        (output,) = llm.generate([given], sampling, use_tqdm=False)
        found.append(output.num_cached_tokens or 0)
        answers.append(list(output.outputs[0].token_ids))
    below.adapter.shutdown()
    return {"found": found, "answers": answers}


def scenario_stress(
    model: str, transfer: dict[str, Any] | None, num_requests: int = 200, faults: bool = False, **options: Any
) -> dict[str, Any]:
    """Requests with shared beginnings, many at once, on a pool that is too small for them: evictions, preemptions. Some
    have a salt, some are aborted, and once all caches are reset under way."""
    disk = TroubledDisk() if faults else None
    llm = start(
        model,
        transfer,
        **({"dtype": "float32", "num_gpu_blocks_override": 64, "max_model_len": 672, "max_num_seqs": 6} | options),
    )
    below = Offloading(llm) if transfer is not None else None
    source = random.Random(3)
    beginnings = [tokens(400, 50 + i) for i in range(6)]
    prompts = [
        source.choice(beginnings)[: source.choice([140, 270, 390])] + tokens(source.randrange(1, 200), 1000 + i)
        for i in range(num_requests)
    ]
    answers: list[list[int] | None] = []
    batch = num_requests // 10
    for place in range(10):
        if disk is not None and below is not None:
            disk.next_trouble(below)
        first = place * batch
        resets = below is not None and place == 6
        answers += serve_crowd(llm, prompts[first : first + batch], first=first, resets=resets)
    metrics = {m.name: m.value for m in llm.get_metrics() if hasattr(m, "value")}
    report: dict[str, Any] = {
        "answers": answers,
        "preemptions": metrics["vllm:num_preemptions"],
        "loaded_tokens": metrics.get("vllm:external_prefix_cache_hits", 0),
    }
    if below is not None:
        if disk is not None:
            disk.heal()
        below.settle()
        report["counters"] = below.counters()
        report["disk_faults"] = disk.num_faults if disk is not None else 0
        report["leaks"] = below.leaks()
        below.adapter.shutdown()
    return report


def serve_crowd(llm: LLM, prompts: list[list[int]], *, first: int, resets: bool) -> list[list[int] | None]:
    """All at once. Answers; None for those that were aborted."""
    queue = llm.llm_engine
    sampling = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True, detokenize=False)
    answers: list[list[int] | None] = [None] * len(prompts)
    for place, prompt in enumerate(prompts):
        salt = {"cache_salt": "own"} if place % 5 == 4 else {}
        queue.add_request(str(first + place), {"prompt_token_ids": prompt, **salt}, sampling)
    given_up = list(range(3, len(prompts), 7))
    aborts = {1 + 8 * i: place for i, place in enumerate(given_up)}
    num_steps = 0
    while queue.has_unfinished_requests():
        for output in queue.step():
            answers[int(output.request_id) - first] = list(output.outputs[0].token_ids)
        num_steps += 1
        if num_steps in aborts:
            queue.abort_request([str(first + aborts.pop(num_steps))])
        if resets and num_steps == 20:
            queue.reset_prefix_cache(reset_connector=True)
    for place in given_up:
        answers[place] = None
    return answers


class TroubledDisk:
    """Gives the disk tiers that are made from now on a disk of many troubles, and workers some too."""

    def __init__(self) -> None:
        from octavo.offload.tiers.disk import spec
        from octavo.testing.faulty_disk import FaultyDiskIO
        from octavo.transfer.host_copier import HostCopier

        self._io = FaultyDiskIO()
        self._round = 0
        self._source = random.Random(5)
        self._gate: Any = None
        build = spec.DiskSpec.build
        spec.DiskSpec.build = lambda this, context: build(replace(this, io=self._io), context)
        store, load = HostCopier.store, HostCopier.load

        def troubled_store(this: Any, batches: Any, **options: Any) -> Any:
            if self._is_troubled():
                raise RuntimeError("the device is unwell")
            return store(this, batches, **options)

        def troubled_load(this: Any, batches: Any, chunks: Any) -> Any:
            if self._is_troubled():
                return frozenset({0})
            return load(this, batches, chunks)

        HostCopier.store, HostCopier.load = troubled_store, troubled_load

    @property
    def num_faults(self) -> int:
        return int(self._io.num_faults)

    def next_trouble(self, below: Offloading) -> None:
        """Each kind for a while, then none, from a tier that is back."""
        self.heal()
        self._round += 1
        match self._round % 5:
            case 1:
                self._io.flips_a_bit = True
            case 2:
                self._gate = self._io.hanging("read")
                self._gate.__enter__()
            case 3:
                self._io.fail("write", "sync", errno=errno.ENOSPC)
            case 4:
                self._io.fail("read", errno=errno.EIO)
            case 0:
                below.wait_for_tiers()

    def heal(self) -> None:
        self._io.heal()
        if self._gate is not None:
            self._gate.__exit__(None, None, None)
            self._gate = None

    def _is_troubled(self) -> bool:
        return self._source.random() < 0.1


SCENARIOS: dict[str, Callable[..., dict[str, Any]]] = {
    "loads": scenario_loads,
    "ranks": scenario_ranks,
    "again": scenario_again,
    "strangers": scenario_strangers,
    "refused": scenario_refused,
    "salts": scenario_salts,
    "stress": scenario_stress,
}


def main() -> None:
    name, arguments = sys.argv[1:]
    known = SCENARIOS[name](**json.loads(arguments))
    print("KNOWN " + json.dumps(known), flush=True)


if __name__ == "__main__":
    main()
