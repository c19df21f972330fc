"""Do the tests see it if a rule is broken? Seeded bugs, each in a copy of the source, each of which must be caught.

    python scripts/mutation_check.py [--pieces] [--jobs 2] [--some COUNT] [NAME ...]

A bug is an exact piece of source and what stands there instead; if the source has changed so that the piece is not
there exactly once, that is said, and the bug is to be written anew (`--pieces` looks no further). The tests are those
that ought to see it, and pass with the source as it is, which is checked first. The working tree is never touched. Exit
code 1 if a bug survives.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from seeded_bugs import ENGINE_BUGS, Bug, Tests
from seeded_trust_bugs import TRUST_BUGS

BUGS = (*ENGINE_BUGS, *TRUST_BUGS)
ROOT = Path(__file__).parents[1]
TIMEOUT_S = 240

OPTIONS = ("-x", "-q", "--tb=no", "-p", "no:cacheprovider")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    is_caught: bool
    seconds: float
    by: str
    """The test that saw it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only bugs whose name contains one of these")
    parser.add_argument("--pieces", action="store_true", help="only whether all pieces of source are there")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--some", type=int, metavar="COUNT", help="so many of them, others after each commit")
    args = parser.parse_args()
    bugs = [bug for bug in BUGS if not args.names or any(name in bug.name for name in args.names)]
    require_pieces(bugs)
    if args.pieces:
        return
    if args.some is not None:
        bugs = random.Random(commit()).sample(bugs, min(args.some, len(bugs)))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as threads:
        originals = together({bug.tests for bug in bugs})
        for tests, failure in zip(
            originals, threads.map(lambda t: run(copy_source(Path(folder)), t), originals), strict=True
        ):
            if failure.is_caught:
                sys.exit(f"without any bug, {' '.join(tests)} fails: {failure.by}")
        print(f"{'bug':60}{'seconds':>8}  caught by", flush=True)
        survivors = 0
        for bug, outcome in zip(bugs, threads.map(lambda bug: try_bug(bug, Path(folder)), bugs), strict=True):
            survivors += not outcome.is_caught
            print(f"{bug.name:60}{outcome.seconds:8.1f}  {outcome.by}", flush=True)
    print(f"{len(bugs) - survivors} of {len(bugs)} caught")
    sys.exit(survivors > 0)


def commit() -> str:
    """Empty where there is no history."""
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()


def together(chosen: Iterable[Tests]) -> list[Tests]:
    """Tests that are named one by one run in one go; those that are chosen by a pattern run alone."""
    by_pattern = sorted(tests for tests in set(chosen) if "-k" in tests)
    named = sorted({test for tests in chosen if "-k" not in tests for test in tests})
    return [*by_pattern, tuple(named)] if named else by_pattern


def require_pieces(bugs: Iterable[Bug]) -> None:
    """Says which bugs are out of date."""
    stale = [bug for bug in bugs if (ROOT / "src/octavo" / bug.file).read_text().count(bug.right) != 1]
    for bug in stale:
        print(f"{bug.name!r}: src/octavo/{bug.file} does not have this exactly once:\n{bug.right}", file=sys.stderr)
    if stale:
        sys.exit(1)


def try_bug(bug: Bug, folder: Path) -> Outcome:
    source = copy_source(folder)
    path = source / "octavo" / bug.file
    path.write_text(path.read_text().replace(bug.right, bug.wrong))
    return run(source, bug.tests)


def copy_source(folder: Path) -> Path:
    source = Path(tempfile.mkdtemp(dir=folder))
    shutil.copytree(ROOT / "src/octavo", source / "octavo", ignore=shutil.ignore_patterns("__pycache__"))
    return source


def run(source: Path, tests: Sequence[str]) -> Outcome:
    """Runs tests over a copy of the source. Whatever ends them but success has seen the bug."""
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", *OPTIONS, *tests]
    environment = os.environ | {
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_PROFILE": "any",
    }
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(is_caught=True, seconds=TIMEOUT_S, by="the time limit")
    seconds = time.monotonic() - began
    if done.returncode == 0:
        return Outcome(is_caught=False, seconds=seconds, by="NOBODY")
    return Outcome(is_caught=True, seconds=seconds, by=first_failure(done.stdout + done.stderr))


def first_failure(output: str) -> str:
    lines = output.splitlines()
    found = next((line for line in lines if line.startswith(("FAILED", "ERROR"))), None)
    if found is None:
        return lines[-1] if lines else "no output"
    return found.split(" ", 1)[1].split(" - ")[0]


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
