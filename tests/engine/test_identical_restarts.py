"""What another engine has left on a disk is found by an engine of the same identity, and by no other."""

import random
import shutil

import pytest
from workloads import Answer, Clock, Family, check_nothing_is_held, families, generate, resumed, settle

from octavo.engine.engine import Engine
from octavo.engine.offloading import offload_maker
from rigs.offload_always import offload_always

FAMILIES = ["llama", "gemma3", "qwen3_next"]
NEW_TOKENS = 6
MEMORY_BYTES = 8 << 20
OTHERS = {
    "dtype": {"dtype": "bfloat16"},
    "attention block size": {"attention_block_size": 16},
    "hash seed": {"hash_seed": "another"},
}


family = families(*FAMILIES)


@pytest.fixture(scope="module")
def prompts(family):
    """With nothing in common: what is resumed comes from the disk."""
    chooser = random.Random(family.name)
    return [family.choose(chooser, (), num_own, NEW_TOKENS) for num_own in (40, 100, 71)]


@pytest.fixture(scope="module")
def disk(family, prompts, tmp_path_factory):
    """A disk on which an engine has left what it knows of the prompts."""
    folder = tmp_path_factory.mktemp("disk")
    engine = start(family, folder)
    generate(engine, prompts, NEW_TOKENS)
    settle(engine)
    engine.close()
    return folder


def start(family, disk=None, **options) -> Engine:
    """A process's engine: the model is read from its folder."""
    config = family.config(MEMORY_BYTES, **options)
    if disk is None:
        return Engine.from_config(config)
    tiers = {"staging": "4MiB", "tiers": [{"type": "disk", "path": str(disk), "size": "64MiB"}]}
    return Engine.from_config(config, make_offload=offload_maker(config, offload_always(tiers)))


def serve(engine, prompts) -> tuple[list[Answer], dict[str, int]]:
    """Answers, and tokens resumed by medium."""
    answers = generate(engine, prompts, NEW_TOKENS)
    found = resumed(engine)
    check_nothing_is_held(engine, Clock())
    engine.close()
    return answers, found


def check(family, prompts, answers):
    for prompt, answer in zip(prompts, answers, strict=True):
        answer.check_is(family.answer(prompt, NEW_TOKENS))


def test_the_same_engine_finds_all(family, prompts, disk, tmp_path):
    shutil.copytree(disk, tmp_path / "disk")
    engine = start(family, tmp_path / "disk")
    step = engine.manager.config.resume_granularity
    answers, found = serve(engine, prompts)
    check(family, prompts, answers)
    assert found == {"disk": sum((len(prompt) - 1) // step * step for prompt in prompts)}


@pytest.mark.parametrize("name", OTHERS)
def test_another_engine_finds_nothing(family, prompts, disk, tmp_path, name):
    shutil.copytree(disk, tmp_path / "disk")
    answers, found = serve(start(family, tmp_path / "disk", **OTHERS[name]), prompts)
    assert found == {}
    if name == "dtype":  # Hugging Face's own sums in half precision are others than ours
        plain = generate(start(family, **OTHERS[name]), prompts, NEW_TOKENS)
        assert [answer.tokens for answer in answers] == [answer.tokens for answer in plain]
    else:
        check(family, prompts, answers)


def test_another_distance_of_checkpoints_matters_where_there_are_any(family, prompts, disk, tmp_path):
    shutil.copytree(disk, tmp_path / "disk")
    engine = start(family, tmp_path / "disk", state_block_size=32)
    has_state = any(group.spec.rule.holds_checkpoints for group in engine.manager.config.groups)
    answers, found = serve(engine, prompts)
    assert (not found) == has_state
    check(family, prompts, answers)


def test_another_model_of_the_same_shape_finds_nothing(family, prompts, disk, tmp_path):
    shutil.copytree(disk, tmp_path / "disk")
    other = Family(family.name, tmp_path / "model", seed=1)
    chooser = random.Random(0)
    own = [other.choose(chooser, prompt, 8, NEW_TOKENS) for prompt in prompts]
    answers, found = serve(start(other, tmp_path / "disk"), own)
    assert found == {}
    check(other, own, answers)
