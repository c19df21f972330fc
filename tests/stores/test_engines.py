"""Engines in processes of their own over one real store: equal answers side by side and one after the other."""

import json
import os
import random
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.stores, pytest.mark.timeout(600)]
LENGTHS = (40, 100)
PATIENT = dict.fromkeys(("find_seconds", "load_seconds", "store_seconds"), 60)


def test_engines_over_s3(server, tmp_path):
    compare_engines(tmp_path, "objects", {"url": f"s3://octavo/{tmp_path.name}", "endpoint": server})


def test_engines_over_redis(redis, tmp_path):
    compare_engines(tmp_path, "redis", {"url": redis["TCP_URL"]})


def test_engines_over_mooncake(run_mooncake, tmp_path):
    with run_mooncake(tmp_path / "pool") as told:
        compare_engines(tmp_path, "mooncake", {"url": told["URL"]})


def compare_engines(folder, medium, settings):
    """Two side by side, which find the store empty and store the same, and then one that resumes what they stored."""
    pytest.importorskip("torch", reason="the engine is an extra")
    from octavo.engine import save_tiny_model

    save_tiny_model("qwen3_next", folder / "model")
    chooser = random.Random(str(folder))
    prompts = json.dumps([[chooser.randrange(3, 384) for _ in range(length)] for length in LENGTHS])

    def start(offload):
        command = [sys.executable, "-m", "rigs.shared_engine", str(folder / "model"), json.dumps(offload), prompts]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(command, stdout=subprocess.PIPE, env=env)

    def end(engine):
        said, _ = engine.communicate(timeout=250)
        assert engine.returncode == 0
        return json.loads(said)

    offload = {"memory": "4MiB", "shared": settings | PATIENT}
    alone, _ = end(start(None))
    for engine in [start(offload), start(offload)]:
        assert end(engine)[0] == alone
    answers, resumed = end(start(offload))
    assert answers == alone
    assert resumed[medium] >= 32 + 96
