"""What prompts share is resumed by every kind of model, from memory and after a restart from disk, with real tokens."""

import random

import pytest
from workloads import families, generate, resumed, settle

from octavo.engine.engine import Engine
from octavo.engine.offloading import offload_maker
from rigs.offload_always import offload_always

FAMILIES = ["llama", "gemma3", "qwen3_next"]
NEW_TOKENS = 4
NUM_SHARED, NUM_OWN = 96, 61


family = families(*FAMILIES)


@pytest.fixture
def prompts(family):
    chooser = random.Random(family.name)
    shared = [chooser.randrange(3, 200) for _ in range(NUM_SHARED)]
    return [family.choose(chooser, shared, NUM_OWN, NEW_TOKENS) for _ in range(4)]


def start(family, disk):
    config = family.config(8 << 20)
    offload = {"memory": "8MiB", "tiers": [{"type": "disk", "path": str(disk), "size": "64MiB"}]}
    return Engine.from_config(config, make_offload=offload_maker(config, offload_always(offload)))


@pytest.mark.parametrize("restarts", [False, True])
def test_prompts_that_share_a_beginning_resume_there(family, prompts, tmp_path, restarts):
    """The device is emptied in between, and with restarts memory too."""
    engine, found = start(family, tmp_path), []
    for prompt in prompts:
        before = sum(resumed(engine).values())
        [answer] = generate(engine, [prompt], NEW_TOKENS)
        answer.check_is(family.answer(prompt, NEW_TOKENS))
        found.append(sum(resumed(engine).values()) - before)
        settle(engine)
        engine.manager.reset_prefix_cache()
        if restarts:
            engine.close()
            engine = start(family, tmp_path)
    step = engine.manager.config.resume_granularity
    engine.close()
    assert found == [0, *[NUM_SHARED // step * step] * 3]
