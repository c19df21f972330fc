"""The default policy beside LRU and ARC on a trace from a file, at several capacities.

    python benchmarks/compare_trace_policies.py TRACE --requests 5000 --model examples/models/qwen3-8b.json \
        --device 40GiB --memory 60GiB 160GiB 500GiB
    python benchmarks/compare_trace_policies.py TRACE --requests 2000 --skip 0 2000 4000 8000 \
        --model examples/models/gpt-oss-20b.json --device 10GiB --memory 40GiB 130GiB 400GiB
    python benchmarks/compare_trace_policies.py FOLDER --requests 40 --skip 0 40 80 --block-size 512 \
        --max-model-len 262144 --model examples/models/gpt-oss-20b.json --device 16GiB --memory 16GiB 48GiB

Runs `octavo simulate` for each, on stretches of the trace that begin after `--skip` requests, or after as many sessions
of a folder with one in each file. All three policies store what the writer promises. "Gap": how much of what LRU
misses, of all that had been computed before, the default resumes. "Ahead": points of a hundred that it resumes more
than the better of LRU and ARC.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

POLICIES = ("lru", "arc", "resume_points")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--skip", type=int, nargs="+", default=[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--memory", nargs="+", required=True)
    parser.add_argument("--block-size", type=int)
    parser.add_argument("--max-model-len", type=int)
    args = parser.parse_args()
    print(f"{'skip':>6}{'memory':>10}" + "".join(f"{policy:>15}" for policy in POLICIES) + f"{'seen':>8}{'gap':>8}")
    won = missed = 0.0
    ahead = []
    for skip in args.skip:
        with TemporaryDirectory() as folder:
            stretch = write_stretch(args.trace, skip, args.requests, Path(folder))
            for memory in args.memory:
                reports = [simulate(args, stretch, memory, policy) for policy in POLICIES]
                lru, arc, ours = (report["resumed_share"] for report in reports)
                seen = reports[0]["seen_share"]
                won, missed = won + ours - lru, missed + seen - lru
                ahead.append(100 * (ours - max(lru, arc)))
                gap = share_of(ours - lru, seen - lru)
                print(f"{skip:>6}{memory:>10}{lru:15.2%}{arc:15.2%}{ours:15.2%}{seen:8.1%}{gap:>8}", flush=True)
    print(f"{'pooled':>16}{'':>53}{share_of(won, missed):>8}")
    lost = sum(min(0, points) for points in ahead) / len(ahead)
    num_below = sum(points < -0.2 for points in ahead)
    print(
        f"ahead of the better of LRU and ARC: {sum(ahead) / len(ahead):+.2f} points in the mean of {len(ahead)} cases, "
        f"{lost:+.2f} lost, {min(ahead):+.2f} at worst, {num_below} below -0.2"
    )


def write_stretch(trace: Path, skip: int, num_requests: int, folder: Path) -> Path:
    stretch = folder / "stretch.jsonl"
    with stretch.open("w") as chosen:
        for line in islice(lines_of(trace), skip, skip + num_requests):
            chosen.write(line.strip() + "\n")
    return stretch


def lines_of(trace: Path) -> Iterator[str]:
    """The lines of a file, or of a folder's files, which have one each."""
    for path in sorted(trace.glob("*.json*")) if trace.is_dir() else [trace]:
        with path.open() as lines:
            yield from lines


def share_of(won: float, missed: float) -> str:
    """`-` where LRU misses nothing."""
    return f"{won / missed:.0%}" if missed > 0 else "-"


def simulate(args: argparse.Namespace, trace: Path, memory: str, policy: str) -> Any:
    command = [sys.executable, "-m", "octavo", "simulate", str(trace), "--model", args.model]
    command += ["--device", args.device, "--memory", memory, "--policy", policy, "--json"]
    for flag, value in (("--block-size", args.block_size), ("--max-model-len", args.max_model_len)):
        command += [] if value is None else [flag, str(value)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["results"][0]


if __name__ == "__main__":
    main()
