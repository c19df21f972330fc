"""Whole routers before engines under load, for `bench_router.py --part busy`.

Simulated engines with real schedulers and block managers, 10,000 prompt tokens a second each. Each router chooses by
its own costs, of cached blocks and of load, and learns as soon as the other.

attention   Octavo's costs over an index that counts full attention only
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from dynamo_place import DynamoPlace
from router_traffic import TRAFFIC, trace_of

from octavo.planning import plan_kv_cache, read_model
from octavo.sim import PLACEMENTS, Place, SimConfig, SimReport, SimulatedEngine, Trace, read_trace, replay
from octavo.specs import RequestLimits

MODELS = Path(__file__).parents[1] / "examples" / "models"
POOLS_GIB = {
    "llama-3.1-8b": (16, 48),
    "gemma-3-27b": (24, 72),
    "qwen3-next-80b": (4, 12),
    "granite-4.0-h-small": (6, 18),
}
"""By model: pools of an engine, for some of the documents and for most of them. A trace gets the larger one."""


class _Sum:
    """The results of several traces."""

    def __init__(self) -> None:
        self._expected = self._asked = self._resumed = 0
        self._mean_s: list[float] = []
        self._p99_s: list[float] = []

    def add(self, report: SimReport, expected: int) -> None:
        self._resumed += sum(report.resumed_tokens.values())
        self._asked += report.prompt_tokens
        self._expected += expected
        self._mean_s.append(report.ttft_mean_s)
        self._p99_s.append(report.ttft_p99_s)

    @property
    def resumed(self) -> float:
        return self._resumed / self._asked

    @property
    def expected(self) -> float:
        return self._expected / self._asked

    @property
    def mean_s(self) -> float:
        return sum(self._mean_s) / len(self._mean_s)

    @property
    def p99_s(self) -> float:
        return sum(self._p99_s) / len(self._p99_s)


def compare_busy(args: argparse.Namespace, *, with_dynamo: bool) -> None:
    if args.trace is None:
        traces = {
            name: [trace_of(name, num_requests=args.requests, seed=seed) for seed in range(args.seeds)]
            for name in TRAFFIC
        }
    else:
        trace = read_trace(args.trace, most_requests=args.requests, max_model_len=args.max_model_len)
        traces = {args.trace.stem: [trace]}
    names = ["octavo", "longest_prefix", *(["dynamo"] if with_dynamo else [])]
    titles = "".join(f"{title:>19}" for title in ("Octavo", "attention", "Dynamo"))
    print(f"{'resumed; mean and p99 of the first token, s':48}{titles}  expected   ratio")
    for traffic, several in traces.items():
        for model, pools in POOLS_GIB.items():
            for gib in pools if args.trace is None else pools[-1:]:
                sums = {name: sums_of(name, model, gib, several, args.engines) for name in names}
                row = "".join(f"{one.resumed:>7.1%}{one.mean_s:6.2f}{one.p99_s:6.2f}" for one in sums.values())
                if with_dynamo:
                    ratio = sums["octavo"].resumed / sums["dynamo"].resumed
                    row += f"{sums['dynamo'].expected:>10.1%}{ratio:>7.2f}x"
                print(f"  {traffic:20}{model:20}{gib:3} GiB{row}", flush=True)


def sums_of(name: str, model: str, gib: int, traces: Sequence[Trace], num_engines: int) -> _Sum:
    total = _Sum()
    for trace in traces:
        layers = read_model(MODELS / f"{model}.json", block_size=trace.block_tokens).layers
        limits = RequestLimits(max_model_len=trace.longest + 1, max_step_tokens=8192)
        plan = plan_kv_cache(layers, memory_bytes=gib << 30, limits=limits)
        config = SimConfig(plan=plan, tells_tokens=name == "dynamo")
        if name == "dynamo":
            total.add(*_before_dynamo(trace, config, num_engines))
        else:
            total.add(replay(trace, config, num_engines=num_engines, make_place=PLACEMENTS[name]), 0)
    return total


def _before_dynamo(trace: Trace, config: SimConfig, num_engines: int) -> tuple[SimReport, int]:
    places: list[DynamoPlace] = []

    def make_place(engines: Sequence[SimulatedEngine]) -> Place:
        places.append(DynamoPlace(engines))
        return places[0]

    report = replay(trace, config, num_engines=num_engines, make_place=make_place)
    places[0].close()
    return report, places[0].num_expected_tokens
