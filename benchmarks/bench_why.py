"""What `octavo why` costs the engine: the time in its log, as a share of the steps in the same run.

    python benchmarks/bench_why.py [--requests 60] [--prompt 1000] [--rounds 3]

A tiny model, so that steps are short and the share is the largest: each request computes or resumes its prompt and two
tokens. The pool holds a tenth of the prompts, so that most resumes are lost and have a cause to be found. The best
round counts. The limit is a hundredth of a step.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from octavo.engine import Engine, EngineConfig, SamplingParams, save_tiny_model

LIMIT = 0.01
FAMILIES = ("llama", "gemma3", "qwen3_next")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--prompt", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    over = []
    print(f"{'family':12}{'us per request':>16}{'ms of steps per request':>26}{'share':>8}")
    for family in FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            save_tiny_model(family, Path(folder))
            rounds = [measure(Path(folder), args.requests, args.prompt, seed) for seed in range(args.rounds)]
        inside, steps = min(rounds, key=lambda of_round: of_round[0] / of_round[1])
        share = inside / steps
        print(f"{family:12}{inside / args.requests * 1e6:16.0f}{steps / args.requests * 1e3:26.2f}{share:8.2%}")
        over += [family] if share > LIMIT else []
    if over:
        sys.exit(f"{', '.join(over)}: more than {LIMIT:.0%} of a step")


class Stopwatch:
    """The time in the calls that it wraps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - began

        return timed


def measure(folder: Path, num_requests: int, prompt_tokens: int, seed: int) -> tuple[float, float]:
    """Seconds in the log of starts and of departures, and in all steps."""
    engine = Engine.from_config(
        EngineConfig(model=folder, device_memory_bytes=8 << 20, max_model_len=prompt_tokens + 64, max_num_seqs=4)
    )
    watch, log, departures = Stopwatch(), engine.why, engine.manager.pool.departures
    assert log is not None
    assert departures is not None
    for owner, names in ((log, ("started", "ended", "note_prefill")), (departures, ("note",))):
        for name in names:
            setattr(owner, name, watch.around(getattr(owner, name)))
    engine._forward._note_prefill = [log.note_prefill]  # noqa: SLF001 - it was bound before
    chooser = random.Random(seed)
    prompts = [[chooser.randrange(3, 200) for _ in range(prompt_tokens)] for _ in range(max(2, num_requests // 6))]
    for number in range(num_requests):
        engine.add_request(str(number), chooser.choice(prompts), SamplingParams(max_tokens=2, temperature=0))
    while engine.has_unfinished:
        engine.step()
    return watch.seconds, engine.counters.step_s


if __name__ == "__main__":
    main()
