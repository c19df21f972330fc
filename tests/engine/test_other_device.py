"""What another device has computed is not used: it rounds sums in its own way, and answers might differ."""

import random

import pytest
from workloads import Clock, Family, generate, resumed

from octavo.engine.tiny_families import VOCAB_SIZE

CAPABILITY = "torch.backends.cpu.get_cpu_capability"


@pytest.mark.parametrize("name", ["gemma3", "qwen3_next"])
def test_a_folder_that_moves_between_machines_serves_each_its_own(name, tmp_path, monkeypatch):
    family, chooser = Family(name, tmp_path / "model"), random.Random(name)
    prompts = [[chooser.randrange(3, VOCAB_SIZE) for _ in range(150)]]
    tiers = {"staging": "2MiB", "tiers": [{"type": "disk", "path": str(tmp_path / "disk"), "size": "64MiB"}]}
    found = []
    for capability in ("AVX512", "AVX2", "AVX512", "AVX2"):
        monkeypatch.setattr(CAPABILITY, lambda capability=capability: capability)
        engine = family.engine(offload=tiers, clock=Clock())
        generate(engine, prompts, 4)
        found.append(resumed(engine).get("disk", 0) > 0)
        engine.close()
    assert found == [False, False, True, True]
