"""Many requests on a pool that is too small for them, and a disk and workers that fail."""

import errno
import random
from dataclasses import replace
from typing import Any

from plugin_serving import Offloading, generate_each, start, tokens
from vllm import LLM, SamplingParams

_CROWD = 20


def scenario_stress(
    model: str, transfer: dict[str, Any] | None, num_requests: int = 120, faults: bool = False, **options: Any
) -> dict[str, Any]:
    """Requests with shared beginnings, many at once, on a pool that is too small for them: evictions, preemptions. Some
    have a salt, some are aborted, and once all caches are reset under way."""
    disk = TroubledDisk() if faults else None
    llm = start(
        model,
        transfer,
        **({"dtype": "float32", "num_gpu_blocks_override": 43, "max_model_len": 672, "max_num_seqs": 10} | options),
    )
    below = Offloading(llm) if transfer is not None else None
    source = random.Random(3)
    beginnings = [tokens(400, 50 + i) for i in range(6)]
    prompts = [
        source.choice(beginnings)[: source.choice([140, 270, 390])] + tokens(source.randrange(1, 200), 1000 + i)
        for i in range(num_requests)
    ]
    answers: list[list[int] | None] = []
    for first in range(0, num_requests, _CROWD):
        if disk is not None and below is not None:
            disk.next_trouble(below)
        resets = below is not None and first == _CROWD
        answers += serve_crowd(llm, prompts[first : first + _CROWD], first=first, resets=resets)
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
    for index, prompt in enumerate(prompts):
        salt = {"cache_salt": "own"} if index % 5 == 4 else {}
        queue.add_request(str(first + index), {"prompt_token_ids": prompt, **salt}, sampling)
    given_up = list(range(3, len(prompts), 7))
    aborts = {1 + 8 * i: index for i, index in enumerate(given_up)}
    num_steps = 0
    while queue.has_unfinished_requests():
        for output in queue.step():
            answers[int(output.request_id) - first] = list(output.outputs[0].token_ids)
        num_steps += 1
        if num_steps in aborts:
            queue.abort_request([str(first + aborts.pop(num_steps))])
        if resets and num_steps == 20:
            queue.reset_prefix_cache(reset_connector=True)
    for index in given_up:
        answers[index] = None
    return answers


def scenario_failed_loads(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """Three rounds of prompts that are in memory, on a device that has room for one of them. In each the first load
    fails: of a request alone, of one before another that has loaded, and of one before which another is asked."""
    llm = start(
        model, transfer, dtype="float32", max_model_len=640, num_gpu_blocks_override=37, scheduling_policy="priority"
    )
    below = Offloading(llm)
    prompts = [tokens(520, 10 + i) for i in range(5)]
    report: dict[str, Any] = {"right": generate_each(llm, prompts)[0], "answers": []}
    for prompts_of_round, is_late in ((prompts[:1], False), (prompts[1:3], False), (prompts[3:], True)):
        below.forget_device()
        report["answers"] += serve_after_failure(llm, below, prompts_of_round, is_late=is_late)
        if below.is_stuck():
            break
    report["counters"] = below.counters()
    below.adapter.shutdown()
    return report


def serve_after_failure(
    llm: LLM, below: Offloading, prompts: list[list[int]], *, is_late: bool
) -> list[list[int] | None]:
    """Answers; None where there will be none. `is_late`: the last request comes when the load has failed, and is asked
    before the others."""
    fail_next_load()
    queue, failures = llm.llm_engine, below.counters()["load_failed"]
    sampling = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, detokenize=False)
    waiting = list(enumerate(prompts))
    answers: dict[str, list[int]] = {}
    while (waiting or queue.has_unfinished_requests()) and not below.is_stuck():
        while waiting and (len(waiting) > is_late or below.counters()["load_failed"] > failures):
            index, prompt = waiting.pop(0)
            queue.add_request(str(index), {"prompt_token_ids": prompt}, sampling, priority=-index * is_late)
        answers |= {output.request_id: list(output.outputs[0].token_ids) for output in queue.step()}
    return [answers.get(str(index)) for index in range(len(prompts))]


def scenario_reset_under_way(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """A prompt whose chunks are in memory, and vLLM's cache is reset while it runs: it is preempted, and loads."""
    llm = start(model, transfer)
    below = Offloading(llm)
    prompt = tokens(520, 10)
    report: dict[str, Any] = {"right": generate_each(llm, [prompt])[0][0]}
    below.settle()
    queue = llm.llm_engine
    sampling = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, detokenize=False)
    queue.add_request("0", {"prompt_token_ids": prompt}, sampling)
    queue.step()
    queue.reset_prefix_cache(reset_running_requests=True)
    while queue.has_unfinished_requests() and not below.is_stuck():
        for output in queue.step():
            report["answer"] = list(output.outputs[0].token_ids)
    report["loaded"] = below.counters()["loaded"]
    below.adapter.shutdown()
    return report


def scenario_queued_at_reset(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """All caches are reset while one prompt runs and others wait. Then all again, after the device has forgotten
    them."""
    llm = start(model, transfer, max_num_seqs=1)
    below = Offloading(llm)
    prompts = [tokens(520, 10 + i) for i in range(3)]
    queue, answers = llm.llm_engine, {}
    sampling = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, detokenize=False)
    for index, prompt in enumerate(prompts):
        queue.add_request(str(index), {"prompt_token_ids": prompt}, sampling)
    for _ in range(3):
        queue.step()
    assert queue.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
    while queue.has_unfinished_requests():
        answers |= {output.request_id: list(output.outputs[0].token_ids) for output in queue.step()}
    below.forget_device()
    report = {"right": [answers[str(index)] for index in range(len(prompts))], "found": generate_each(llm, prompts)}
    below.adapter.shutdown()
    return report


def fail_next_load() -> None:
    from octavo.transfer import HostCopier

    load = HostCopier.load

    def troubled_load(this: Any, batches: Any, chunks: Any) -> Any:
        HostCopier.load = load
        return load(this, batches, chunks) | {0}

    HostCopier.load = troubled_load


def scenario_loads_ahead(model: str, transfer: dict[str, Any]) -> dict[str, Any]:
    """Prompts of which half is in memory, at once on a device that has room for one of them, and for the loaded halves
    of more. What the windows of the rest need is more than vLLM reserves."""
    llm = start(
        model,
        transfer,
        dtype="float32",
        max_model_len=2048,
        max_num_batched_tokens=512,
        num_gpu_blocks_override=48,
    )
    below = Offloading(llm)
    prompts = [tokens(2040, 10 + i) for i in range(4)]
    generate_each(llm, [prompt[:1030] for prompt in prompts])
    below.forget_device()
    queue, answers = llm.llm_engine, {}
    sampling = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, detokenize=False)
    for index, prompt in enumerate(prompts):
        queue.add_request(str(index), {"prompt_token_ids": prompt}, sampling)
    while queue.has_unfinished_requests() and not below.is_stuck():
        answers |= {o.request_id: (list(o.outputs[0].token_ids), o.num_cached_tokens) for o in queue.step()}
    below.adapter.shutdown()
    return {"found": [answers.get(str(index)) for index in range(len(prompts))]}


class TroubledDisk:
    """Gives the disk tiers that are made from now on a disk of many troubles, and workers some too."""

    def __init__(self) -> None:
        from octavo.tiers.disk import DiskSpec
        from octavo.transfer import HostCopier
        from rigs.faulty_disk import FaultyDiskIO

        self._io = FaultyDiskIO()
        self._round = 0
        self._source = random.Random(5)
        self._gate: Any = None
        build = DiskSpec.build
        DiskSpec.build = lambda this, context: build(replace(this, io=self._io), context)
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
