"""The comparison that admits a family: one tiny model, in plain Hugging Face and behind the whole engine."""

import random
from pathlib import Path
from typing import Any

from greedy_engine import GreedyEngine
from workloads import Clock, Family, check_nothing_is_held, forget_device, generate, resumed

from octavo.engine.tiny_families import VOCAB_SIZE

MOST_PARAMETERS = 3_000_000
NUM_TOKENS = 6


class NotAdmittedError(Exception):
    """Why not."""


def compare(name: str, folder: Path) -> None:
    """Raises what goes wrong, or nothing."""
    family = Family(name, folder / "model")
    if sum(parameter.numel() for parameter in family._plain.parameters()) > MOST_PARAMETERS:
        raise NotAdmittedError("no tiny model could be made of it")
    chooser = random.Random(name)
    shared = [chooser.randrange(3, VOCAB_SIZE) for _ in range(60)]
    shapes: list[tuple[list[int], int]] = [(shared, 17), ([], 120), ([], 33), (shared, 40)]
    prompts = [family.choose(chooser, prefix, own, NUM_TOKENS) for prefix, own in shapes]
    check_small_steps(family, prompts)
    clock = Clock()
    tiers = {"memory": "4MiB", "tiers": [{"type": "disk", "path": str(folder / "disk"), "size": "64MiB"}]}
    for medium, rounds in (("memory", 2), ("disk", 1)):
        engine = family.engine(offload=tiers, clock=clock)
        for _ in range(rounds):
            check_answers(family, engine, prompts)
            forget_device(engine)
        found = resumed(engine)
        if not found.get(medium):
            raise NotAdmittedError(f"nothing was resumed from {medium}")
        check_nothing_is_held(engine, clock)
        engine.close()


def check_small_steps(family: Family, prompts: list[list[int]]) -> None:
    engine = GreedyEngine(family.model, tokens_per_step=40, state_block_size=32)
    engine.runner.pages.pool.fill_(-1)  # a NaN in every float type
    for _ in range(2):
        jobs = engine.generate(prompts, NUM_TOKENS)
        if [job.generated for job in jobs] != [family.answer(prompt, NUM_TOKENS).tokens for prompt in prompts]:
            raise NotAdmittedError("its tokens differ")


def check_answers(family: Family, engine: Any, prompts: list[list[int]]) -> None:
    for prompt, answer in zip(prompts, generate(engine, prompts, NUM_TOKENS), strict=True):
        answer.check_is(family.answer(prompt, NUM_TOKENS))
