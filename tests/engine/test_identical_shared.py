"""Two engines over one store: the second resumes what the first computed, with the same answers."""

import random
from pathlib import Path

import pytest
from workloads import Clock, check_nothing_is_held, families, generate, resumed, settle

from octavo.cli import run
from octavo.engine.engine import Engine
from octavo.engine.offloading import offload_maker
from rigs.offload_always import offload_always

FAMILIES = ["gemma3", "qwen3_next", "falcon_h1"]
NEW_TOKENS = 6
MEMORY_BYTES = 8 << 20


family = families(*FAMILIES)


@pytest.fixture(scope="module")
def prompts(family):
    """With nothing in common: what is resumed comes from the store."""
    chooser = random.Random(family.name)
    return [family.choose(chooser, (), num_own, NEW_TOKENS) for num_own in (40, 100, 71)]


def start(family, folder, **settings):
    shared = {"url": f"file://{folder}", "find_seconds": 60, "load_seconds": 60, "store_seconds": 60, **settings}
    return start_over(family, {"shared": shared})


def start_over(family, tiers, **options):
    offload = offload_always({"memory": "4MiB", **tiers})
    config = family.config(MEMORY_BYTES)
    return Engine.from_config(config, make_offload=offload_maker(config, offload, **options))


def serve(engine, family, prompts, **options):
    """Serves, compares with what was computed without any cache, and says what was resumed, by medium."""
    for prompt, answer in zip(prompts, generate(engine, prompts, NEW_TOKENS, **options), strict=True):
        answer.check_is(family.answer(prompt, NEW_TOKENS))
    return resumed(engine)


def test_engines_share_what_they_compute(family, prompts, tmp_path):
    first = start(family, tmp_path)
    second = start(family, tmp_path)
    step = first.manager.config.resume_granularity
    serve(first, family, prompts[:2])
    settle(first)
    found = serve(second, family, prompts)
    assert found == {"objects": sum((len(prompt) - 1) // step * step for prompt in prompts[:2])}
    settle(second)
    for engine in (first, second):
        check_nothing_is_held(engine, Clock())
        engine.close()
    third = start(family, tmp_path)
    found = serve(third, family, prompts)
    assert found == {"objects": sum((len(prompt) - 1) // step * step for prompt in prompts)}
    check_nothing_is_held(third, Clock())
    third.close()


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_an_engine_resumes_from_a_disk_that_was_warmed_from_the_store(family, prompts, tmp_path, is_encrypted):
    store, disk, key, size = tmp_path / "store", tmp_path / "disk", tmp_path / "key", "32MiB"
    key.write_text("5a" * 32)
    first = start(family, store, **{"key_file": str(key)} if is_encrypted else {})
    step = first.manager.config.resume_granularity
    serve(first, family, prompts)
    settle(first)
    first.close()
    named = ["--namespace", Path(family.config(MEMORY_BYTES).model).name]
    named += ["--key-file", str(key)] if is_encrypted else []
    assert run(["store", "warm", f"file://{store}", "--disk", str(disk), "--size", size, *named]) == 0
    second = start_over(family, {"disk": {"path": str(disk), "size": size}})
    found = serve(second, family, prompts)
    assert found == {"disk": sum((len(prompt) - 1) // step * step for prompt in prompts)}
    check_nothing_is_held(second, Clock())
    second.close()


def test_a_tenant_with_a_quota_resumes_what_another_engine_has_stored(family, prompts, tmp_path):
    store = {"shared": {"url": f"file://{tmp_path}", "find_seconds": 60, "load_seconds": 60, "store_seconds": 60}}
    first, second = (start_over(family, store, quotas={"tenant": 4 << 20}) for _ in range(2))
    step = first.manager.config.resume_granularity
    serve(first, family, prompts, cache_salt="tenant")
    settle(first)
    found = serve(second, family, prompts, cache_salt="tenant")
    assert found == {"objects": sum((len(prompt) - 1) // step * step for prompt in prompts)}
    for engine in (first, second):
        check_nothing_is_held(engine, Clock())
        engine.close()
