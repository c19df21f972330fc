"""What compiling the block manager with mypyc as it stands would bring: the same phases in pure Python and compiled.

Needs a C compiler. Run it in `.venv`: python benchmarks/compiled.py [--rounds N]
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HOT = [
    "octavo/blocks/pages.py",
    "octavo/blocks/pool.py",
    "octavo/blocks/lookup.py",
    "octavo/blocks/managers.py",
    "octavo/blocks/request.py",
    "octavo/blocks/kv_cache_manager.py",
    "octavo/specs/resume.py",
]


def measure() -> dict[str, float]:
    """Median microseconds of the phases, in this process."""
    from octavo_adapter import Adapter

    results = {}
    for config in ("full1", "gemma6"):
        for num_blocks in (64, 4096):
            results[f"{config} hit {num_blocks}"] = measure_hit(Adapter, config, num_blocks)
            results[f"{config} eviction {num_blocks}"] = measure_eviction(Adapter, config, num_blocks)
        results[f"{config} decode, per request"] = measure_decode(Adapter, config)
    return results


def measure_hit(adapter: Callable[..., Any], config: str, num_blocks: int) -> float:
    engine = adapter(config, num_blocks * 8)
    tokens = prompt(num_blocks)
    first = engine.new_request(tokens)
    engine.allocate(first, num_blocks * 16)
    engine.allocate(first, 1)
    engine.free(first)

    def serve() -> None:
        request = engine.clone_request(first)
        hit, resumed = engine.lookup(request)
        engine.allocate(request, len(tokens) - resumed, hit, resumed)
        engine.free(request)

    return median_us(serve, 30)


def measure_eviction(adapter: Callable[..., Any], config: str, num_blocks: int) -> float:
    engine = adapter(config, (num_blocks + 64) * (6 if config == "gemma6" else 1))
    requests = iter([engine.new_request(prompt(num_blocks)) for _ in range(10)])

    def serve() -> None:
        request = next(requests)
        engine.lookup(request)
        engine.allocate(request, num_blocks * 16 + 1)
        engine.free(request)

    serve()
    serve()
    return median_us(serve, 8)


def measure_decode(adapter: Callable[..., Any], config: str, batch: int = 256) -> float:
    engine = adapter(config, batch * 80 * (6 if config == "gemma6" else 1))
    requests = [engine.new_request(prompt(66)[: 1024 + i % 16]) for i in range(batch)]
    for request in requests:
        engine.allocate(request, request.num_tokens)
    return median_us(lambda: engine.batch_step(requests, [5] * batch), 96) / batch


def median_us(call: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - start)
    return statistics.median(taken) / 1000


def prompt(num_blocks: int) -> list[int]:
    return [random.randrange(1, 150_000) for _ in range(num_blocks * 16 + 1)]


def build(folder: Path) -> None:
    shutil.copytree(ROOT / "src" / "octavo", folder / "octavo")
    mypyc = Path(sys.executable).with_name("mypyc")
    subprocess.run([str(mypyc), *HOT], cwd=folder, check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure()))
        return
    with tempfile.TemporaryDirectory() as scratch:
        paths = {"pure": ROOT / "src", "mypyc": Path(scratch) / "mypyc"}
        build(paths["mypyc"])
        best: dict[str, dict[str, float]] = {}
        for _ in range(arguments.rounds):
            for how, path in paths.items():
                search = os.pathsep.join([str(path), str(ROOT / "benchmarks")])
                command = [sys.executable, __file__, "--measure"]
                run = subprocess.run(
                    command, env={**os.environ, "PYTHONPATH": search}, check=True, capture_output=True, text=True
                )
                for phase, us in json.loads(run.stdout).items():
                    of_phase = best.setdefault(phase, {})
                    of_phase[how] = min(us, of_phase.get(how, us))
    print(f"{'us, best of ' + str(arguments.rounds) + ' rounds':32s}" + "".join(f"{how:>18s}" for how in paths))
    for phase, times in best.items():
        columns = "".join(f"{us:10.2f} {times['pure'] / us:6.2f}x" for us in times.values())
        print(f"{phase:32s}{columns}")


if __name__ == "__main__":
    main()
