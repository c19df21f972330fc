"""Whether a load inside vLLM is ever slower than computing: the first token over a disk that is fast, and a slow one.

    bench_vllm_load_or_compute.py [--rounds 4] [--requests 24] [--disk slow]        in the environment that has vLLM

A Llama of 30M parameters, 24 prompts of 300 to 1,800 tokens that are asked again and again, each time with another end.
The device holds six of them, memory eight, the disk all. The disk is as it is (fast), or throttled to 100 or 10 MB/s
with 50 ms of latency (slow, slower); requests hardly meet (low load), or come faster than an engine computes without a
cache (high).

Three engines, each a process of its own, are asked the same in turn, in another order each time: one loads always, one
never, and one what is measured to be quicker. The first round, in which it learns, does not count. A ratio is its time
over that of the better of the other two, for each percentile by itself; below 1 both lose.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from statistics import quantiles
from typing import Any, NamedTuple

from vllm_engines import Engine, kv_transfer, make_model, reply

RULES = ("never", "always", "measured")
DISKS = {"fast": None, "slow": (100e6, 0.05), "slower": (10e6, 0.05)}
"""Bytes a second, and seconds."""
LOADS = {"low": 0.5, "high": 0.09}
"""Seconds between two requests."""
PROMPTS, LENGTHS, TAIL, ANSWER = 24, (300, 1800), 40, 4
DEVICE, MEMORY = 56 << 20, "72MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--disk", choices=DISKS, action="append")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_model(f"{folder}/model")
        print(f"{'disk':8}{'load':6}{'':5}{'never':>9}{'always':>9}{'measured':>10}{'ratio':>7}   given up")
        for disk in asked.disk or DISKS:
            engines = {rule: Engine(__file__, folder, rule, disk) for rule in RULES}
            try:
                for engine in engines.values():
                    engine.read()  # it is ready
                for load in LOADS:
                    show(disk, load, in_rounds(engines, load, asked))
            finally:
                for engine in engines.values():
                    engine.close()


def in_rounds(engines: dict[str, Engine], load: str, asked: argparse.Namespace) -> dict[str, list[Any]]:
    """The answers of each engine's rounds, but for the first."""
    answers: dict[str, list[Any]] = defaultdict(list)
    order = list(engines)
    for number in range(asked.rounds):
        random.Random(number).shuffle(order)
        for rule in order:
            answer = engines[rule].ask(load, number, asked.requests)
            if number:
                answers[rule].append(answer)
    return answers


def show(disk: str, load: str, answers: dict[str, list[Any]]) -> None:
    seconds = {rule: sorted(s for answer in rounds for s in answer["seconds"]) for rule, rounds in answers.items()}
    given_up = {
        reason: sum(answer["given_up"][reason] for answer in answers["measured"])
        for reason in ("too_slow", "cut_short")
    }
    for percent in (50, 99):
        never, always, measured = (quantiles(seconds[rule], n=100, method="inclusive")[percent - 1] for rule in RULES)
        print(
            f"{disk:8}{load:6}{f'p{percent}':5}{never * 1e3:6.0f} ms{always * 1e3:6.0f} ms{measured * 1e3:7.0f} ms"
            f"{measured / min(never, always):7.2f}   {given_up['too_slow']} whole, {given_up['cut_short']} in part",
            flush=True,
        )


# ---- in the engine's process ----------------------------------------------------------------------------------------


def serve(folder: str, rule: str, disk: str) -> None:
    from vllm import LLM

    llm = LLM(
        model=f"{folder}/model",
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="bfloat16",
        max_model_len=2048,
        max_num_seqs=8,
        max_num_batched_tokens=2048,
        kv_cache_memory_bytes=DEVICE,
        enable_prefix_caching=True,
        seed=0,
        kv_transfer_config=kv_transfer(
            memory=MEMORY,
            tiers=[{"type": "disk", "path": f"{folder}/{rule} {disk}", "size": "2GiB"}],
            digests=folder,
            loads=rule,
        ),
    )
    adapter = llm.llm_engine.engine_core.engine_core.scheduler.connector.connector_scheduler.manager
    source = random.Random(0)
    prompts = [tokens(source, source.randint(*LENGTHS)) for _ in range(PROMPTS)]
    for prompt in prompts:
        first_tokens(llm, [(0.0, prompt)])
        settle(llm)
    if (speed := DISKS[disk]) is not None:
        tier = adapter.manager._below.lowers[0]._tier  # noqa: SLF001 - a real disk, made slow
        throttle(tier, *speed)
    reply("ready")
    told: dict[str, int] = defaultdict(int)
    for line in sys.stdin:
        load, number, count = json.loads(line)
        asked = random.Random(f"{load} {number}")
        arrivals, now = [], 0.0
        for _ in range(count):
            now += asked.expovariate(1 / LOADS[load])
            arrivals.append((now, [*asked.choice(prompts), *tokens(asked, TAIL)]))
        seconds = first_tokens(llm, arrivals)
        settle(llm)  # the others have the machine to themselves
        counts = dict(adapter._choosing.given_up)  # noqa: SLF001
        given_up = {reason: counts[reason] - told[reason] for reason in counts}
        told.update(counts)
        reply({"seconds": seconds, "given_up": given_up})
    adapter.shutdown()


def first_tokens(llm: Any, arrivals: list[tuple[float, list[int]]]) -> list[float]:
    """Seconds to the first token of requests that come at these times."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=ANSWER, ignore_eos=True, detokenize=False)
    waiting, engine, begun = list(enumerate(arrivals)), llm.llm_engine, time.perf_counter()
    seconds: dict[str, float] = {}
    while waiting or engine.has_unfinished_requests():
        now = time.perf_counter() - begun
        while waiting and waiting[0][1][0] <= now:
            number, (_, prompt) = waiting.pop(0)
            engine.add_request(f"{number} {begun}", {"prompt_token_ids": prompt}, sampling)
        if not engine.has_unfinished_requests():
            time.sleep(max(0.0, waiting[0][1][0] - now))
            continue
        for output in engine.step():
            if output.outputs and output.outputs[0].token_ids and output.request_id not in seconds:
                arrived = arrivals[int(output.request_id.split()[0])][0]
                seconds[output.request_id] = time.perf_counter() - begun - arrived
    return list(seconds.values())


def tokens(source: random.Random, count: int) -> list[int]:
    return [source.randrange(4, 512) for _ in range(count)]


def settle(llm: Any) -> None:
    """What was computed is stored in the next step, and goes to disk then."""
    first_tokens(llm, [(0.0, [5, 6, 7])])
    core = llm.llm_engine.engine_core.engine_core
    while core.scheduler.connector.has_pending_push_work():
        core.step()


class Held(NamedTuple):
    """The end of a read that is not told yet."""

    due: float
    result: Any


def throttle(tier: Any, bytes_per_s: float, latency_s: float) -> None:
    """Its reads end as those of a slower one: one after the other at this rate, and each so much later."""
    submit_load, poll, cancel = tier.submit_load, tier.poll, tier.cancel
    due_of: dict[int, float] = {}
    held: dict[int, Held] = {}
    busy_until = 0.0

    def slow_submit_load(job_id: int, chunks: Any) -> bool:
        nonlocal busy_until
        now = time.monotonic()
        if not submit_load(job_id, chunks):
            return False
        num_bytes = sum(len(buffer) for chunk in chunks for buffer in chunk.buffers)
        busy_until = max(busy_until, now) + num_bytes / bytes_per_s
        due_of[job_id] = busy_until + latency_s
        return True

    def slow_poll(now: float) -> list[Any]:
        told = []
        for result in poll(now):
            due = due_of.pop(result.job_id, None)
            if due is None:
                told.append(result)
            else:
                held[result.job_id] = Held(due, result._replace(seconds=None))
        ended = [job_id for job_id, late in held.items() if late.due <= time.monotonic()]
        return told + [held.pop(job_id).result for job_id in ended]

    def slow_cancel(job_id: int) -> None:
        if held.pop(job_id, None) is None:
            due_of.pop(job_id, None)
            cancel(job_id)

    tier.submit_load, tier.poll, tier.cancel = slow_submit_load, slow_poll, slow_cancel


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        serve(*sys.argv[2:5])
    else:
        main()
