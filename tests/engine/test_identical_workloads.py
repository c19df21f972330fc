"""Random workloads over every family: requests come, share prefixes, fork, are cancelled and give way in a small pool,
while a tier misbehaves now and then. No token differs, and nothing stays held."""

import os
import random
import time
from collections import Counter
from dataclasses import dataclass

import pytest
from msgspec.structs import replace
from workloads import (
    LONGEST_WAIT_S,
    Answer,
    Clock,
    Delay,
    Family,
    FaultySpec,
    Tokens,
    check_nothing_is_held,
    families,
    greedy,
    resumed,
)

from octavo.engine.outputs import FinishReason
from octavo.engine.tiny_families import TINY_MODELS, VOCAB_SIZE
from octavo.offload import OffloadConfig, StorePolicy
from rigs.faulty_tier import TierFault

SEEDS = int(os.environ.get("OCTAVO_WORKLOAD_SEEDS", "2"))
"""For each family. By hand, run more."""
NUM_REQUESTS = 16
LONGEST_ANSWER = 12


family = families(*TINY_MODELS)


@pytest.fixture(scope="module")
def media():
    """Where tokens were resumed from: by many workloads together, from everywhere."""
    found = Counter()
    yield found
    assert not found or found.keys() == {"device", "memory", FaultySpec.medium}


@pytest.fixture(scope="module")
def prompts(family):
    """Few, so that they come again; one goes on from another one's answer."""
    chooser = random.Random(family.name)
    shared = [chooser.randrange(3, VOCAB_SIZE) for _ in range(70)]
    shapes = [(shared, 9), (shared, 50), (shared[:40], 20), ([], 3), ([], 100), ([], 31)]
    prompts = [family.choose(chooser, prefix, num_own, LONGEST_ANSWER) for prefix, num_own in shapes]
    turn = prompts[0] + family.answer(prompts[0], LONGEST_ANSWER).tokens
    return [*prompts, family.choose(chooser, turn, 10, LONGEST_ANSWER)]


@dataclass(kw_only=True)
class Wish:
    """One request, and what its choices have got."""

    prompt: Tokens
    num_tokens: int
    answers: list[Answer]


class Workload:
    """An engine that a seed makes, and what it is asked in which order."""

    def __init__(self, family: Family, prompts: list[Tokens], seed: int, disk: str) -> None:
        self.chooser = random.Random(f"{family.name} {seed}")
        self.family, self.prompts, self.clock = family, prompts, Clock()
        self.wishes: dict[str, Wish] = {}
        self.spec = FaultySpec.from_config(
            {"type": "disk", "path": disk, "size": "64MiB", "hang_seconds": 3600}  # the clock jumps
        )
        arena = self.chooser.choice([{"staging": "512KiB"}, {"memory": "256KiB"}, {"memory": "4MiB"}])
        config = OffloadConfig.from_mapping(
            {
                **arena,
                "tiers": [{"type": "disk", "path": disk, "size": "1MiB"}],
                "blocks_per_chunk": self.chooser.choice([1, 1, 3]),
            }
        )
        self.engine = family.engine(
            int(family.least_memory() * self.chooser.choice([1.0, 1.4, 2.5])),
            offload=replace(config, tiers=(self.spec,), store=self.chooser.choice(list(StorePolicy))),
            clock=self.clock,
            max_step_tokens=self.chooser.choice([32, 48, 96]),
            delay=Delay(self.chooser.choice([0, 1, 4])),
        )

    def run(self) -> None:
        began = time.monotonic()
        num_left = NUM_REQUESTS
        while num_left or self.engine.has_unfinished:
            if num_left and self.chooser.random() < 0.4:
                num_left -= 1
                self._add(f"request {num_left}")
            self._happen()
            self._take(self.engine.step())
            assert time.monotonic() - began < LONGEST_WAIT_S, "the engine hangs"

    def check(self) -> None:
        for wish in self.wishes.values():
            expected = self.family.answer(wish.prompt, LONGEST_ANSWER)
            for answer in wish.answers:
                answer.check_begins(expected)
                assert answer.finish_reason in (FinishReason.LENGTH, FinishReason.ABORT)
                if answer.finish_reason is FinishReason.LENGTH:
                    assert len(answer.tokens) == wish.num_tokens

    def _add(self, name: str) -> None:
        wish = Wish(
            prompt=self.chooser.choice(self.prompts),
            num_tokens=self.chooser.randrange(1, LONGEST_ANSWER + 1),
            answers=[Answer() for _ in range(self.chooser.choice([1, 1, 1, 2]))],
        )
        self.wishes[name] = wish
        self.engine.add_request(name, wish.prompt, greedy(wish.num_tokens, n=len(wish.answers)))

    def _happen(self) -> None:
        what = self.chooser.random()
        if what < 0.02 and self.wishes:
            self._take(self.engine.abort(self.chooser.choice(list(self.wishes))))
        elif what < 0.05:
            self.spec.tier.fault = self.chooser.choice([*TierFault])
        elif what < 0.2:
            self.spec.tier.fault = TierFault.NONE
        elif what < 0.3:
            self.clock.skip(self.chooser.choice([0.1, 1.0, 5.0]))
        elif what < 0.37:
            self.engine.manager.reset_prefix_cache()
        elif what < 0.375:
            self.engine.reset_prefix_cache()

    def _take(self, outputs) -> None:
        for output in outputs:
            self.wishes[output.request_id].answers[output.index].take(output)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_token_differs(family, prompts, seed, media, tmp_path):
    workload = Workload(family, prompts, seed, str(tmp_path))
    workload.run()
    workload.check()
    media.update(resumed(workload.engine))
    workload.spec.tier.fault = TierFault.NONE
    check_nothing_is_held(workload.engine, workload.clock)
    workload.engine.close()
