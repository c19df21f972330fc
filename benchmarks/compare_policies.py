"""The default policy beside LRU and ARC, through the scheduler, on many kinds of generated traffic.

    python benchmarks/compare_policies.py --requests 300 --seeds 2 [--busy]

The device is as small as it can be, so that all comes from memory. With `--busy` requests come faster than they are
served, and the device has room for several. Points of a hundred of the prompts' tokens that the
default resumes more than the better of the two; "lost": the mean of what it resumes less.
"""

import argparse
from collections.abc import Sequence

from octavo.sim import SimConfig, Speeds, Trace, replay
from octavo.testing import TRAFFIC, full, make_traffic, small_model, state, window

BLOCK = 4
MODELS = {
    "full": small_model(full(4, heads=64)),
    "hybrid": small_model(window(8, heads=64), state(4, elements=2048), full(4, heads=32)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="full")
    parser.add_argument("--requests", type=int, default=300, help="of each trace")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.03, 0.1, 0.2, 0.3], help="of the footprint")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--kinds", nargs="+", choices=TRAFFIC, default=TRAFFIC)
    args = parser.parse_args()
    print(f"{'':16}{'mean':>8}{'lost':>8}{'worst':>8}   below -0.2")
    ahead: list[float] = []
    for kind in args.kinds:
        of_kind = [
            points_ahead(args.model, trace, share, is_busy=args.busy)
            for trace in (make_trace(kind, args.requests, seed, args.busy) for seed in range(1, args.seeds + 1))
            for share in args.shares
        ]
        print_row(kind, of_kind)
        ahead += of_kind
    print_row("all", ahead)


def make_trace(kind: str, count: int, seed: int, is_busy: bool) -> Trace:
    prompts = make_traffic(kind, count, seed=seed)
    return Trace.of_prompts(prompts, block_tokens=BLOCK, interval_s=0.02 if is_busy else 10.0)


def points_ahead(model: str, trace: Trace, share: float, *, is_busy: bool) -> float:
    policies = ("resume_points", "lru", "arc")
    ours, *others = (resumed(model, trace, share, policy, is_busy=is_busy) for policy in policies)
    return 100 * (ours - max(others))


def resumed(model: str, trace: Trace, share: float, policy: str, *, is_busy: bool) -> float:
    plan = MODELS[model].plan(1.0 if is_busy else 0.2)
    block_bytes = sum(group.page_bytes for group in plan.groups)
    footprint = len({int(i) for request in trace.requests for i in request.block_ids}) * block_bytes
    config = SimConfig(
        plan=plan,
        memory_bytes=int(footprint * share),
        policy=policy,
        speeds=Speeds(memory_bytes_per_s=1e18, prefill_tokens_per_s=300.0 if is_busy else 10_000.0),
    )
    return replay(trace, config).resumed_share


def print_row(name: str, ahead: Sequence[float]) -> None:
    lost = sum(max(0.0, -points) for points in ahead) / len(ahead)
    below = sum(points < -0.2 for points in ahead)
    mean = sum(ahead) / len(ahead)
    print(f"{name:16}{mean:8.2f}{lost:8.2f}{min(ahead):8.2f}   {below} of {len(ahead)}", flush=True)


if __name__ == "__main__":
    main()
