"""The example of a third party's spec, built and installed as anybody would, then used by a new process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "third_party_spec"

USE_IT = """
from octavo.specs import (
    FullAttentionSpec, GroupAvailability, KVCacheSpecRegistry, Resume, ResumePoint, SlidingWindowSpec,
    UniformTypeKVCacheSpecs, longest_resume,
)
from octavo.testing.strategies import BlockSet

assert "ReferenceWindowSpec" in [spec.__name__ for spec in KVCacheSpecRegistry.registered_specs()]
assert KVCacheSpecRegistry.plugin_failures() == ()

from octavo_rswa import ReferenceWindowManager, ReferenceWindowSpec

size = {"block_size": 16, "num_kv_heads": 2, "head_size": 64}
spec = ReferenceWindowSpec(**size, window=33)
KVCacheSpecRegistry.check_kv_cache_spec_registry({"layer": spec})
assert KVCacheSpecRegistry.get_manager_class(spec) is ReferenceWindowManager

# Prompt of 96 tokens (blocks 0 to 5); at 320 the window needs blocks 18 and 19, at 304 blocks 17 and 18.
request = ResumePoint(num_tokens=321, num_prompt_tokens=96)
def resume(present):
    groups = [
        GroupAvailability(spec=FullAttentionSpec(**size), blocks=BlockSet(frozenset(range(20)))),
        GroupAvailability(spec=spec, blocks=BlockSet(frozenset(present))),
    ]
    return longest_resume(groups, request)
assert resume({*range(6), 18, 19}) == Resume(num_tokens=320, limited_by=None)
assert resume({*range(6), 17, 18}) == Resume(num_tokens=304, limited_by=1)
assert resume({*range(5), *range(6, 20)}) == Resume(num_tokens=80, limited_by=1)

wide = ReferenceWindowSpec(block_size=16, num_kv_heads=8, head_size=128, window=33)
group = UniformTypeKVCacheSpecs.of({"layers.0": spec, "layers.1": wide})
assert group.kind == "reference_window"
assert group.page_size_bytes == spec.page_size_bytes + wide.page_size_bytes
assert KVCacheSpecRegistry.get_manager_class(group) is ReferenceWindowManager
for other in (
    ReferenceWindowSpec(**size, window=32), FullAttentionSpec(**size), SlidingWindowSpec(**size, sliding_window=33)
):
    assert not UniformTypeKVCacheSpecs.are_uniform({"layers.0": spec, "layers.1": other})
print("all is well")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the example in it. Built with the hatchling of this environment, so nothing is downloaded."""
    target = tmp_path_factory.mktemp("site")
    run("-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--no-index",
        "--no-build-isolation", "--target", target, EXAMPLE)  # fmt: skip
    return target


def run(*arguments, path=None):
    environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_another_process_finds_it_and_uses_it(installed):
    assert run("-c", USE_IT, path=installed) == "all is well\n"


def test_its_own_tests_pass(installed):
    assert "passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLE, path=installed)


def test_here_it_is_unknown():
    """Whoever does not install it is none the wiser."""
    assert run("-c", "from octavo.specs import KVCacheSpecRegistry as r; print(len(r.registered_specs()))") == "12\n"
