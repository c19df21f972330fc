"""The longest pause of each call of the offloading manager, with a reset in between.

A shared machine stops any call now and then. So the same work is done several times, each in a process of its own; a
call counts as long as it took at best, and of these the longest is told: what it does itself is in all of them.
"""

import gc
import multiprocessing
import random
import time
from array import array
from collections import defaultdict
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

NUM_RUNS = 3
Times = dict[str, "array[int]"]


def longest_pauses(make_adapter: Callable[[], Any], make_run: Callable[[int], Any], num_runs: int) -> dict[str, float]:
    """Milliseconds of thread CPU time, by call. `make_run(i)`: keys of batch i; `num_runs` of these fill the arena."""
    fork = multiprocessing.get_context("fork")
    repetitions = []
    for _ in range(NUM_RUNS):
        line, far_end = fork.Pipe()
        process = fork.Process(target=_play, args=(far_end, make_adapter, make_run, num_runs), daemon=True)
        process.start()
        repetitions.append(line.recv())
        process.join()
    return {
        call: max(map(min, zip(*(times[call] for times in repetitions), strict=True))) / 1e6 for call in repetitions[0]
    }


def _play(line: Connection, make_adapter: Callable[[], Any], make_run: Callable[[int], Any], num_runs: int) -> None:
    """Fills the arena, replaces all that is in it once while it is used, resets it, and fills it again."""
    rng = random.Random(0)
    keys = [make_run(number) for number in range(2 * num_runs)]
    gc.collect()
    gc.freeze()
    adapter = make_adapter()
    manager = adapter.manager
    times: Times = defaultdict(lambda: array("q"))

    def timed(name: str, call: Callable[..., Any], *args: Any) -> Any:
        began = time.thread_time_ns()
        result = call(*args)
        times[name].append(time.thread_time_ns() - began)
        return result

    def store(run: Any) -> None:
        chunks = adapter.chunks(run)
        prepared = timed("prepare_store", adapter.prepare_store, chunks)
        timed("complete_store", adapter.complete_store, chunks, prepared)
        timed("poll", manager.poll, 0.0)

    for run in keys[:num_runs]:
        store(run)
    for number, run in enumerate(keys[num_runs:], num_runs):
        used = keys[number - 1 - rng.randrange(num_runs // 2)]
        stands = timed("lookup", adapter.lookup, used)
        timed("touch", adapter.touch, used)
        if all(stand.name == "HIT" for stand in stands):
            timed("load", adapter.load, used)
        store(run)
    in_flight = manager.prepare_load(keys[-1])
    timed("reset", manager.reset)
    manager.complete_load(in_flight.job_id)
    for run in keys[:num_runs]:
        store(run)
    line.send(dict(times))
