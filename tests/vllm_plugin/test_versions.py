"""Which versions of vLLM are tried, and what a person is told of the others."""

import sys
from types import ModuleType

import pytest

from octavo.errors import InputError
from octavo.vllm_plugin import versions


@pytest.fixture
def load(monkeypatch):
    """`load_adapter` with a vLLM of a version, and an adapter that lacks methods."""

    def load_with(version, *missing):
        vllm, adapter = ModuleType("vllm"), ModuleType("octavo.vllm_plugin.adapter")
        vllm.__version__, adapter.missing_methods = version, lambda: list(missing)
        monkeypatch.setitem(sys.modules, "vllm", vllm)
        monkeypatch.setitem(sys.modules, "octavo.vllm_plugin.adapter", adapter)
        versions.load_adapter.cache_clear()
        return versions.load_adapter()

    yield load_with
    versions.load_adapter.cache_clear()


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0+cpu", "0.32.1", "0.33.0rc1"])
def test_tested_versions_are_taken_without_a_word(version, load, caplog):
    load(version)
    assert caplog.messages == []


@pytest.mark.parametrize("version", ["0.34.0", "1.2", "dev"])
def test_others_that_are_not_older_are_warned_of_once(version, load, caplog):
    load(version)
    versions.load_adapter()
    (said,) = caplog.messages
    assert f"tested with vLLM 0.31 to 0.33, and {version} is installed" in said


@pytest.mark.parametrize("version", ["0.30.2", "0.3.10", "0.9"])
def test_older_ones_are_refused(version, load):
    with pytest.raises(InputError, match=rf"{version} is installed, which it cannot use \(it is too old\)"):
        load(version)


def test_one_that_calls_more_is_refused(load):
    with pytest.raises(InputError, match=r"it calls OctavoManager\.rewind"):
        load("0.34.0", "OctavoManager.rewind")


def test_one_that_lacks_what_is_needed_is_refused(load, monkeypatch):
    load("0.34.0")
    monkeypatch.setitem(sys.modules, "octavo.vllm_plugin.adapter", None)  # it cannot be imported
    versions.load_adapter.cache_clear()
    with pytest.raises(InputError, match=r"0\.34\.0 is installed, which it cannot use"):
        versions.load_adapter()
