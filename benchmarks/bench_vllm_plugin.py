"""The plug-in inside vLLM: how fast a shared prefix of 900 tokens comes from where, and what it costs where none hits.

    bench_vllm_plugin.py [--rounds 60] [--threads 1] [--lmcache]        in the environment that has vLLM

Engines without the plug-in, twice (how far equal ones differ is the error of all), with one that stores nothing (what
is left is vLLM's own connector), with memory, and with memory and disk, in processes of their own, asked in turn, each
time in another order; for the first token the best round of several, for the cost the median of what each round lost.
The model is small, with random weights, but so large that 900 tokens are worth computing once.

vLLM's kernels have one thread, so that transfers have a core left, as they have beside a GPU. With as many threads as
cores, each of this model's tiny parallel regions waits for the one that a transfer has delayed. All engines compute on
the same core: cores of shared machines are not equally fast. `--lmcache` adds LMCache with as much memory (see
`lmcache_peer`).
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles
from typing import Any
from unittest import mock

from lmcache_peer import LMCacheServer, part_from_server, prepare_vllm
from vllm_engines import ENVIRONMENT, Engine, kv_transfer, make_model, reply

PREFIX, OWN, NUM_REQUESTS, NUM_OUTPUT = 900, 30, 8, 8
ROUNDS, MOST_FIRST = 60, 12
NOTHING, AGAIN = "vLLM", "vLLM once more"
CONNECTOR, MEMORY, DISK, LMCACHE = "its connector", "Octavo memory", "and disk", "LMCache"
BLOCK_TOKENS = 128
MEMORY_BYTES = 256 << 20
MOST_OVERHEAD = 0.03


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lmcache", action="store_true")
    asked = parser.parse_args()
    rounds = asked.rounds
    ENVIRONMENT["OMP_NUM_THREADS"] = str(asked.threads)
    with tempfile.TemporaryDirectory() as folder:
        make_model(f"{folder}/model")
        names = (NOTHING, AGAIN, CONNECTOR, MEMORY, DISK, *([LMCACHE] if asked.lmcache else []))
        engines = {name: Engine(__file__, folder, name) for name in names}
        try:
            first_token: dict[str, float] = {}
            for name in (DISK, LMCACHE):
                if name in engines:
                    seeds = range(min(rounds, MOST_FIRST))
                    first_token |= best([engines[name].ask("first_token", seed) for seed in seeds])
            lost = lost_in_rounds(engines, rounds)
        finally:
            for engine in engines.values():
                engine.close()
    print(f"time to first token, {PREFIX} shared tokens of {PREFIX + OWN}")
    for place, seconds in first_token.items():
        print(f"  {place:<16} {seconds * 1e3:8.1f} ms   {first_token['cold'] / seconds:5.1f} x as fast as cold")
    print(f"requests/s where nothing hits; overhead is to be {MOST_OVERHEAD:.0%} at most")
    for tiers, shares in lost.items():
        low, middle, high = quantiles(shares, n=4)
        print(f"  {tiers:<16} overhead {middle:6.1%} (the middle half of {rounds} rounds: {low:.1%} to {high:.1%})")


def lost_in_rounds(engines: dict[str, "Engine"], rounds: int) -> dict[str, list[float]]:
    """The part of vLLM's requests per second that each other engine lost, by round."""
    order = list(engines)
    lost: dict[str, list[float]] = {tiers: [] for tiers in engines if tiers != NOTHING}
    for seed in range(rounds):
        random.Random(seed).shuffle(order)
        rates = {tiers: engines[tiers].ask("rate", seed)["rate"] for tiers in order}
        for tiers, shares in lost.items():
            shares.append(1 - rates[tiers] / rates[NOTHING])
    return lost


def best(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {place: min(measured[place] for measured in rounds) for place in rounds[0]}


# ---- in the engine's process ----------------------------------------------------------------------------------------


def stores_nothing(*_: object) -> None:
    return None


def serve(folder: str, name: str) -> None:
    from vllm import LLM

    with way_below(folder, name) as transfer:
        llm = LLM(
            model=f"{folder}/model",
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="bfloat16",
            max_model_len=1024,
            max_num_seqs=8,
            kv_cache_memory_bytes=192 << 20,
            enable_prefix_caching=True,
            seed=0,
            kv_transfer_config=transfer,
        )
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # this thread alone
        for line in sys.stdin:
            what, seed = json.loads(line)
            reply(measure_rate(llm, seed) if what == "rate" else measure_first_token(llm, name, seed))
        if name in (CONNECTOR, MEMORY, DISK):
            offloading(llm).shutdown()
        elif name == LMCACHE:
            part_from_server(llm)


@contextmanager
def way_below(folder: str, name: str) -> Iterator[dict[str, Any] | None]:
    """What keeps caches below the device, as vLLM's settings say it; None for vLLM alone."""
    if name == LMCACHE:
        prepare_vllm()
        with LMCacheServer(MEMORY_BYTES, BLOCK_TOKENS) as server:
            yield server.kv_transfer()
        return
    if name == CONNECTOR:
        from octavo.vllm_plugin.adapter import OctavoManager

        mock.patch.object(OctavoManager, "prepare_store", stores_nothing).start()
    disk = {"disk": f"{folder}/disk", "disk_size": "2GiB", "digests": folder} if name == DISK else {}
    yield None if name in (NOTHING, AGAIN) else kv_transfer(memory=MEMORY_BYTES, **disk)


def measure_first_token(llm: Any, name: str, seed: int) -> dict[str, float]:
    source = random.Random(seed)
    shared = tokens(source, PREFIX)
    generate(llm, [tokens(source, PREFIX)], 1)  # warm
    settle(llm)

    def first_token() -> float:
        start = time.perf_counter()
        generate(llm, [shared + tokens(source, OWN)], 1)
        return time.perf_counter() - start

    def again() -> float:
        settle(llm)
        llm.reset_prefix_cache()
        return first_token()

    cold = first_token()
    if name == LMCACHE:
        return {f"{LMCACHE}, cold": cold, LMCACHE: again()}
    measured = {"cold": cold, "vLLM's own hit": first_token(), MEMORY: again()}
    settle(llm)
    lose_memory(offloading(llm).manager)
    return measured | {"Octavo disk": again()}


def lose_memory(below: Any) -> None:
    """As if others had taken it; the disk has all."""
    resident = below._resident  # noqa: SLF001 - nothing else forgets memory alone
    resident.drop(list(resident.index))


def measure_rate(llm: Any, seed: int) -> dict[str, float]:
    """Of requests that come while earlier ones are still being written."""
    source = random.Random(1000 + seed)
    generate(llm, [tokens(source, PREFIX // 2) for _ in range(NUM_REQUESTS // 4)], NUM_OUTPUT)
    prompts = [tokens(source, PREFIX // 2) for _ in range(NUM_REQUESTS)]
    start = time.perf_counter()
    generate(llm, prompts, NUM_OUTPUT)
    rate = NUM_REQUESTS / (time.perf_counter() - start)
    settle(llm)  # the others have the machine to themselves
    return {"rate": rate}


def tokens(source: random.Random, count: int) -> list[int]:
    return [source.randrange(4, 512) for _ in range(count)]


def generate(llm: Any, prompts: list[list[int]], num_tokens: int) -> None:
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True, detokenize=False)
    llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)


def offloading(llm: Any) -> Any:
    return llm.llm_engine.engine_core.engine_core.scheduler.connector.connector_scheduler.manager


def settle(llm: Any) -> None:
    """What was computed is stored in the next step, and goes to disk then."""
    generate(llm, [[5, 6, 7]], 2)
    core = llm.llm_engine.engine_core.engine_core
    while core.scheduler.connector is not None and core.scheduler.connector.has_pending_push_work():
        core.step()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        serve(sys.argv[2], sys.argv[3])
    else:
        main()
