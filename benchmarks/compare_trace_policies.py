"""The default policy beside LRU and ARC on a trace from a file, at several capacities.

    python benchmarks/compare_trace_policies.py TRACE --requests 5000 --model examples/models/qwen3-8b.json \
        --device 40GiB --memory 60GiB 160GiB 500GiB

Runs `octavo simulate` for each. All three store what the writer promises. "Gap": how much of what LRU misses, of all
that had been computed before, the default resumes.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

POLICIES = ("lru", "arc", "resume_points")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--memory", nargs="+", required=True)
    args = parser.parse_args()
    print(f"{'memory':>10}" + "".join(f"{policy:>15}" for policy in POLICIES) + f"{'seen':>8}{'gap':>8}")
    won = missed = 0.0
    for memory in args.memory:
        reports = [simulate(args, memory, policy) for policy in POLICIES]
        lru, arc, ours = (report["resumed_share"] for report in reports)
        seen = reports[0]["seen_share"]
        won, missed = won + ours - lru, missed + seen - lru
        gap = share_of(ours - lru, seen - lru)
        print(f"{memory:>10}{lru:15.1%}{arc:15.1%}{ours:15.1%}{seen:8.1%}{gap:>8}", flush=True)
    print(f"{'pooled':>10}{'':>53}{share_of(won, missed):>8}")


def share_of(won: float, missed: float) -> str:
    """`-` where LRU misses nothing."""
    return f"{won / missed:.0%}" if missed > 0 else "-"


def simulate(args: argparse.Namespace, memory: str, policy: str) -> Any:
    command = [str(Path(sys.executable).with_name("octavo")), "simulate", args.trace, "--requests", str(args.requests)]
    command += ["--model", args.model, "--device", args.device, "--memory", memory, "--policy", policy, "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["results"][0]


if __name__ == "__main__":
    main()
