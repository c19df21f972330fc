"""What the engine costs beside the model: scheduling, sampling and bookkeeping of decode steps, as a share of a step.

    python benchmarks/bench_engine_overhead.py [--batch 32] [--steps 24] [--rounds 3]

The model is a seeded one of 40M parameters. Each way to sample is measured in turn, round after round, in processor
time of the engine's thread, and the best round counts. The limit is a tenth of a step.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from engine_models import save_model

from octavo.engine import Engine, EngineConfig, SamplingParams

LIMIT = 0.10
VOCAB_SIZE = 16384
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "temperature": {},
    "top-p, top-k": {"top_p": 0.9, "top_k": 50},
    "logprobs": {"temperature": 0, "logprobs": 5},
    "penalties": {"temperature": 0, "repetition_penalty": 1.2, "presence_penalty": 0.3},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)  # so that the engine's thread does all the work
    best: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        save_model("full", Path(folder), vocab_size=VOCAB_SIZE)
        engine = make_engine(Path(folder), args.batch)
        for _ in range(args.rounds):
            for name, wishes in WAYS.items():
                measured = measure(engine, wishes, args.batch, args.steps)
                best[name] = min(best.get(name, measured), measured)
    print(f"batch {args.batch}   ms in the model   ms beside it   share of the step")
    for name, (beside, forward) in best.items():
        print(f"{name:14}{forward * 1e3:12.2f}{beside * 1e3:15.2f}{beside / (beside + forward):16.1%}")
    over = [name for name, (beside, forward) in best.items() if beside > LIMIT * (beside + forward)]
    if over:
        sys.exit(f"{', '.join(over)}: more than {LIMIT:.0%} of the step is beside the model")


def make_engine(folder: Path, batch: int) -> Engine:
    engine = Engine.from_config(
        EngineConfig(model=folder, device_memory_bytes=256 << 20, max_model_len=1024, max_num_seqs=batch)
    )
    return Engine(
        engine.runner,
        engine.manager,
        engine.scheduler.limits,
        vocab_size=engine.vocab_size,
        tokenizer=engine.tokenizer,
        clock=time.thread_time,
    )


def measure(engine: Engine, wishes: dict[str, Any], batch: int, steps: int) -> tuple[float, float]:
    """Seconds beside the model and in it, of one decode step."""
    engine.reset_prefix_cache()
    chooser = random.Random(0)
    for number in range(batch):
        prompt = [chooser.randrange(3, VOCAB_SIZE) for _ in range(64 + number)]
        engine.add_request(str(number), prompt, SamplingParams(max_tokens=steps + 20, **wishes))
    while any(choice.num_output_tokens < 2 for choice in engine.scheduler.running) or engine.scheduler.waiting:
        engine.step()
    counters = engine.counters
    before = counters.step_s, counters.forward_s
    for _ in range(steps):
        engine.step()
    step, forward = (counters.step_s - before[0]) / steps, (counters.forward_s - before[1]) / steps
    engine.abort_all()
    return step - forward, forward


if __name__ == "__main__":
    main()
