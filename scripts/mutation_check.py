"""Do the tests see it if a rule is broken? Seeded bugs, each in a copy of the source, each of which must be caught.

    python scripts/mutation_check.py [--jobs 2] [NAME ...]

A bug is an exact piece of source and what stands there instead; if the source has changed so that the piece is not
there exactly once, that is said, and the bug is to be written anew. The tests are those that ought to see it, and pass
with the source as it is, which is checked first. The working tree is never touched. Exit code 1 if a bug survives.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 240

OPTIONS = ("-x", "-q", "--tb=no", "-p", "no:cacheprovider")

Tests = tuple[str, ...]
"""Arguments of pytest."""

WINDOW = ("tests/engine/test_identical.py", "-k", "gemma3 and not gemma3n")
STATE = ("tests/engine/test_identical.py", "-k", "qwen3_next")
BITS_IN_MEMORY = ("tests/engine/test_identical_faults.py", "-k", "gemma3 and flip_in_memory")
BITS_ON_DISK = ("tests/engine/test_identical_faults.py", "-k", "gemma3 and (flips or between)")
HANGS = ("tests/engine/test_identical_faults.py", "-k", "gemma3 and (HANGS or hangs)")
RESTARTS = ("tests/engine/test_identical_restarts.py", "-k", "llama")
LATE = ("tests/engine/test_identical_faults.py", "-k", "gemma3 and (begin_late or too_late)")
OFFLOADING = ("tests/offload/test_state_machine.py", "-k", "wrong and window and full")
MANAGER = ("tests/offload/test_manager.py",)
FORKS = ("tests/blocks/test_state_machine.py", "-k", "null")
LIVENESS = ("tests/engine/test_liveness.py", "-k", "loaded_ahead")
LENDING = ("tests/offload/test_scheduler.py", "-k", "lent or called_in or evicted_again")
STALLS = ("tests/engine/test_stalls.py",)
COMPARED = ("tests/engine/test_compared.py", "-k", "llama and not taken")
BLOCKS = ("tests/blocks/test_state_machine.py", "-k", "window and full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One wrong line, and who ought to see it."""

    name: str
    file: str
    """Under src/octavo."""
    right: str
    wrong: str
    tests: Tests


BUGS = (
    Bug(
        name="a window needs one token less",
        file="specs/attention.py",
        right="first = max(0, point.num_tokens - self.sliding_window + 1)",
        wrong="first = max(0, point.num_tokens - self.sliding_window + 2)",
        tests=WINDOW,
    ),
    Bug(
        name="a query sees one token more than its window",
        file="engine/cache/visibility.py",
        right="np.maximum(queries - (spec.sliding_window - 1), 0)",
        wrong="np.maximum(queries - spec.sliding_window, 0)",
        tests=WINDOW,
    ),
    Bug(
        name="stale state: a page is not copied before it is written",
        file="engine/cache/pages.py",
        right="view[copy.destination].copy_(view[copy.source])",
        wrong="view[copy.destination].zero_()",
        tests=STATE,
    ),
    Bug(
        name="stale state: states of a batch are not written back",
        file="engine/cache/bound_states.py",
        right="tensor.index_copy_(0, self._segment.write_rows, self._states[key].to(tensor.dtype))",
        wrong="tensor.index_select(0, self._segment.write_rows)",
        tests=STATE,
    ),
    Bug(
        name="chunks are not cut where a checkpoint is wanted",
        file="blocks/kv_cache_manager.py",
        right="return num_tokens if boundary is None else min(num_tokens, boundary)",
        wrong="return num_tokens",
        tests=STATE,
    ),
    Bug(
        name="a request may resume at its last token",
        file="specs/resume.py",
        right="return max(0, (num_tokens - 1) // granularity * granularity)",
        wrong="return max(0, num_tokens // granularity * granularity)",
        tests=WINDOW,
    ),
    Bug(
        name="another group's chunk is loaded",
        file="offload/request_state.py",
        right='make_offload_key(BlockHash(b""), group_idx)',
        wrong='make_offload_key(BlockHash(b""), 0)',
        tests=WINDOW,
    ),
    Bug(
        name="a resume point is promised without its window",
        file="offload/stores.py",
        right="chunks += _chunks_to_store(promise.groups[group_idx], blocks.device, missing, run)",
        wrong="chunks += _chunks_to_store(promise.groups[group_idx], blocks.device, [] if group_idx else missing, run)",
        tests=WINDOW,
    ),
    Bug(
        name="pages may be written while a store reads them",
        file="offload/stores.py",
        right="            self._device.hold(group_idx, own)\n",
        wrong=(
            "            self._device.hold(group_idx, own)\n"
            "            self._device.let_go(group_idx, own)\n"
            "        held = {}\n"
        ),
        tests=LATE,
    ),
    Bug(
        name="a chunk's blocks are one further",
        file="offload/offloaded_blocks.py",
        right="return [first_block + i for i in range(held_blocks.bit_length()) if held_blocks >> i & 1]",
        wrong="return [first_block + i + 1 for i in range(held_blocks.bit_length()) if held_blocks >> i & 1]",
        tests=OFFLOADING,
    ),
    Bug(
        name="the worker does not look at checksums",
        file="transfer/host_copier.py",
        right="is_wrong = [a not in (None, b) for a, b in zip(given, found, strict=True)]",
        wrong="is_wrong = [False for _ in given]",
        tests=BITS_IN_MEMORY,
    ),
    Bug(
        name="the disk tier does not look at checksums",
        file="tiers/disk/reader.py",
        right="            and is_whole(record, part.length)\n",
        wrong="",
        tests=BITS_ON_DISK,
    ),
    Bug(
        name="what has failed to load is published",
        file="offload/loads.py",
        right="            if place not in failed:\n",
        wrong="            if place >= 0:\n",
        tests=BITS_IN_MEMORY,
    ),
    Bug(
        name="a request waits for ever for its load",
        file="offload/loads.py",
        right="        if now < state.deadline:\n            return Readiness.WAIT if state.has_room",
        wrong="        if now < state.deadline + 1e9:\n            return Readiness.WAIT if state.has_room",
        tests=LATE,
    ),
    Bug(
        name="what was lent to waiting requests is not called in",
        file="engine/scheduler.py",
        right="            if self._offload.call_in(borrower.blocks):\n",
        wrong="            if borrower is None:\n",
        tests=LIVENESS,
    ),
    Bug(
        name="a request is lent pages where it has no room to run",
        file="blocks/reservation.py",
        right="if not self._pool.can_take(whole):",
        wrong="if not self._pool.can_take(counts):",
        tests=LENDING,
    ),
    Bug(
        name="a load that was called in keeps its pages",
        file="offload/loads.py",
        right="        self._end_loan(state)\n        state.phase = LoadPhase.NEW\n",
        wrong="        state.phase = LoadPhase.NEW\n",
        tests=LENDING,
    ),
    Bug(
        name="chunks that come and go keep a request waiting",
        file="offload/loads.py",
        right="            state.renewals_left -= 1\n",
        wrong="            state.renewals_left -= 0\n",
        tests=LENDING,
    ),
    Bug(
        name="tokens computed again count as progress",
        file="engine/progress.py",
        right="if chunk.end > chunk.choice.most_computed:",
        wrong="if chunk.end > 0:",
        tests=STALLS,
    ),
    Bug(
        name="an idle engine with work does not stall",
        file="engine/progress.py",
        right="return now >= self._idle_since + _MOST_IDLE_S and self._stall()",
        wrong="return now >= self._idle_since + 1e9 and self._stall()",
        tests=STALLS,
    ),
    Bug(
        name="RoPE that depends on the other requests of a step is served",
        file="engine/models/compared.py",
        right="    if kind not in _STATIC_ROPE:\n",
        wrong="    if kind is None:\n",
        tests=COMPARED,
    ),
    Bug(
        name="a key that a family does not have is let pass",
        file="engine/models/compared.py",
        right="        return value is None\n",
        wrong="        return True\n",
        tests=COMPARED,
    ),
    Bug(
        name="a read from a tier has no deadline",
        file="offload/promotions.py",
        right="for job_id, read in self._reads.items() if read.deadline <= now]",
        wrong="for job_id, read in self._reads.items() if read.deadline + 1e9 <= now]",
        tests=HANGS,
    ),
    Bug(
        name="what was stored before a reset is found after it",
        file="offload/manager.py",
        right="        if store.generation != self._generation:\n",
        wrong="        if store.generation > self._generation:\n",
        tests=MANAGER,
    ),
    Bug(
        name="a chunk may be evicted while it is loaded",
        file="offload/manager.py",
        right="        self._resident.add_readers(keys, heads)\n        self._promotions.loaded(keys)\n",
        wrong="        self._promotions.loaded(keys)\n",
        tests=MANAGER,
    ),
    Bug(
        name="a request from before a reset publishes its blocks",
        file="blocks/pool.py",
        right="if sequence.generation != self.generation or not hashes or not rows:",
        wrong="if not hashes or not rows:",
        tests=BLOCKS,
    ),
    Bug(
        name="forked requests write to the page that they share",
        file="blocks/managers.py",
        right="if block >= len(table.rows) or self.pages.is_writable(self.group_idx, table.rows[block]):",
        wrong="if block >= len(table.rows) or table.rows[block] >= 0:",
        tests=FORKS,
    ),
    Bug(
        name="another model's chunks are found",
        file="engine/offloading.py",
        right="model_digest = digest_weights(engine.model, digests, loaded=stamps)",
        wrong='model_digest = b"any"',
        tests=RESTARTS,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    is_caught: bool
    seconds: float
    by: str
    """The test that saw it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only bugs whose name contains one of these")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    bugs = [bug for bug in BUGS if not args.names or any(name in bug.name for name in args.names)]
    require_pieces(bugs)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as threads:
        originals = sorted({bug.tests for bug in bugs})
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
    main()
