"""Plug-ins of strangers: real entry points, as pip would install them, and what they can do to the registry."""

import logging
import re
import sys
import threading
from types import ModuleType

import pytest

from octavo.blocks import ResumeRuleManager
from octavo.errors import ConflictingRegistrationError, UnregisteredSpecError
from octavo.specs import SingleTypeKVCacheManager
from octavo.specs.registry import ENTRY_POINT_GROUP
from octavo.testing import strategies
from rigs.plugins import plugin_folder
from rigs.some_specs import FULL, InheritedSpec, SomeManager, UnknownSpec, run_at_once

SPEC = """
from octavo.specs import FullAttentionSpec, KVCacheSpecRegistry, Platform, register_kv_cache_spec
from octavo.specs import SingleTypeKVCacheManager

class {name}Manager(SingleTypeKVCacheManager):
    pass

@register_kv_cache_spec({name}Manager)
class {name}(FullAttentionSpec):
    pass
"""


@pytest.fixture
def install(fresh, tmp_path):
    """Installs a package of one module with an entry point, before anything is looked up."""
    with plugin_folder(tmp_path, ENTRY_POINT_GROUP) as plugins:
        yield plugins.install


def names(specs):
    return {spec.__name__ for spec in specs} - {spec.__name__ for spec in strategies.BUILTIN_KINDS}


def test_a_module_is_a_plugin(fresh, install):
    install("good", SPEC.format(name="GoodSpec"))
    assert names(fresh.registered_specs()) == {"GoodSpec"}
    assert fresh.plugin_failures() == ()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (SPEC.format(name="GoodSpec"), ":GoodSpec"),
        (
            SPEC.format(name="AtImport")
            + "class GoodSpec(FullAttentionSpec): pass\n"
            + "def register(): KVCacheSpecRegistry.register(GoodSpec, AtImportManager)\n",
            ":register",
        ),
        (
            SPEC.format(name="AtImport")
            + "class GoodSpec(FullAttentionSpec): pass\n"
            + "class MyPlatform(Platform):\n"
            + "    @classmethod\n"
            + "    def register_custom_kv_cache_specs(cls):\n"
            + "        KVCacheSpecRegistry.register(GoodSpec, AtImportManager)\n",
            ":MyPlatform",
        ),
    ],
    ids=["spec", "function", "platform"],
)
def test_what_an_entry_point_may_name(fresh, install, source, target):
    module = install("good", source, target)
    assert "GoodSpec" in names(fresh.registered_specs())
    assert fresh.plugin_failures() == ()
    good_spec = sys.modules[module].GoodSpec(block_size=16, num_kv_heads=1, head_size=64)
    assert issubclass(fresh.get_manager_class(good_spec), SingleTypeKVCacheManager)


def test_plugins_load_once(fresh, install):
    module = install("counting", "calls = []\ndef register(): calls.append(1)\n", ":register")
    run_at_once([fresh.registered_specs, fresh.plugin_failures] * 8)
    assert sys.modules[module].calls == [1]


def test_a_plugin_may_look_up_what_is_registered(fresh, install):
    source = SPEC.format(name="GoodSpec") + (
        "class Child(GoodSpec): pass\n"
        "assert KVCacheSpecRegistry.get_manager_class(Child) is GoodSpecManager\n"
        "assert KVCacheSpecRegistry.get_uniform_type_base_spec(FullAttentionSpec) is FullAttentionSpec\n"
        "assert GoodSpec in KVCacheSpecRegistry.registered_specs()\n"
    )
    install("good", source)
    assert fresh.plugin_failures() == ()
    assert names(fresh.registered_specs()) == {"GoodSpec"}


BROKEN = {
    "missing import": ("import octavo_no_such_module", "", "ModuleNotFoundError: No module named"),
    "syntax error": ("def (", "", "SyntaxError: "),
    "missing attribute": ("", ":Nothing", "AttributeError: .*Nothing"),
    "error at import": (SPEC.format(name="Partial") + "raise RuntimeError('no device')", "", "RuntimeError: no device"),
    "exit": ("raise SystemExit(3)", "", "SystemExit: 3"),
    "error in a function": (
        SPEC.format(name="Partial") + "def register(): 1 / 0",
        ":register",
        "ZeroDivisionError: division by zero",
    ),
    "conflict": (
        SPEC.format(name="Partial")
        + "def register(): KVCacheSpecRegistry.register(FullAttentionSpec, PartialManager)\n",
        ":register",
        "ConflictingRegistrationError: FullAttentionSpec is registered",
    ),
    "not a plug-in": (SPEC.format(name="Partial") + "number = 3", ":number", "InvalidRegistrationError: 3 is neither"),
}


@pytest.mark.parametrize("why", BROKEN)
def test_a_broken_plugin_hides_no_other_and_leaves_nothing(fresh, install, caplog, why):
    source, target, cause = BROKEN[why]
    install("a_good", SPEC.format(name="EarlySpec"))
    install("broken", source, target)
    install("z_good", SPEC.format(name="LateSpec"))
    with caplog.at_level(logging.WARNING, logger="octavo.registry"):
        assert names(fresh.registered_specs()) == {"EarlySpec", "LateSpec"}
    (failure,) = fresh.plugin_failures()
    assert failure.name == "broken"
    assert re.match(cause, failure.cause)
    (record,) = caplog.records
    assert "plug-in broken (octavo_test_broken" in record.message
    assert failure.cause in record.message


def test_a_broken_plugin_that_imports_another_hides_it_not(fresh, install):
    install("a_broken", "import octavo_test_b_good\nraise RuntimeError('no device')")
    install("b_good", SPEC.format(name="GoodSpec"))
    assert names(fresh.registered_specs()) == {"GoodSpec"}
    assert [failure.name for failure in fresh.plugin_failures()] == ["a_broken"]


def test_the_error_for_an_unregistered_spec_mentions_plugins_that_failed(fresh, install):
    install("broken", "import octavo_no_such_module")
    with pytest.raises(UnregisteredSpecError) as raised:
        fresh.get_metadata(UnknownSpec)
    assert "Plug-in 'broken' was not loaded (ModuleNotFoundError: No module named" in str(raised.value)
    with pytest.raises(UnregisteredSpecError, match="Plug-in 'broken' was not loaded"):
        fresh.check_kv_cache_spec_registry({"layer": UnknownSpec(block_size=1)})


OTHERS_SPEC = """
from octavo_test_shared import SharedSpec
from octavo.specs import KVCacheSpecRegistry, SingleTypeKVCacheManager

class {name}Manager(SingleTypeKVCacheManager):
    pass

def register():
    KVCacheSpecRegistry.register(SharedSpec, {name}Manager)
"""


def test_two_plugins_that_disagree_harm_only_whoever_asks_for_their_class(fresh, install, monkeypatch):
    shared = ModuleType("octavo_test_shared")
    shared.SharedSpec = type("SharedSpec", (UnknownSpec,), {})
    monkeypatch.setitem(sys.modules, shared.__name__, shared)
    install("a_first", OTHERS_SPEC.format(name="First"), ":register")
    install("b_second", OTHERS_SPEC.format(name="Second"), ":register")
    install("c_third", SPEC.format(name="GoodSpec"))
    named = r"SharedSpec .*FirstManager.*SecondManager.*b_second = octavo_test_b_second:register.*uninstall one"
    fresh.check_kv_cache_spec_registry({"layer": FULL})
    assert fresh.get_manager_class(FULL) is ResumeRuleManager
    assert names(fresh.registered_specs()) == {"SharedSpec", "GoodSpec"}
    for ask in (fresh.get_metadata, fresh.get_manager_class, fresh.get_uniform_type_base_spec):
        with pytest.raises(ConflictingRegistrationError, match=named):
            ask(shared.SharedSpec(block_size=1))
    with pytest.raises(ConflictingRegistrationError, match=named):
        fresh.check_kv_cache_spec_registry({"layer": shared.SharedSpec(block_size=1)})


def test_what_was_there_before_a_broken_plugin_stays(fresh, install):
    install(
        "broken", "def register():\n    from octavo_test_shared import again\n    again()\n    1 / 0\n", ":register"
    )
    shared = ModuleType("octavo_test_shared")
    shared.again = lambda: fresh.register(InheritedSpec, SomeManager)
    shared.again()
    sys.modules[shared.__name__] = shared
    try:
        assert fresh.get_manager_class(InheritedSpec) is SomeManager
        assert len(fresh.plugin_failures()) == 1
        assert fresh.get_manager_class(InheritedSpec) is SomeManager
    finally:
        del sys.modules[shared.__name__]


@pytest.mark.parametrize(
    "at_import",
    [
        "",
        "KVCacheSpecRegistry.get_uniform_type_base_spec(FullAttentionSpec)",
        "KVCacheSpecRegistry.get_manager_class(SlowSpec)",
    ],
    ids=["registers", "looks up a built-in", "looks up its own"],
)
def test_a_module_being_imported_elsewhere_does_not_deadlock(fresh, install, monkeypatch, at_import):
    """One thread loads plug-ins and waits for a module that another imports, whose decorator needs the registry."""
    gate = ModuleType("octavo_test_gate")
    gate.is_loading, gate.is_importing = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, gate.__name__, gate)
    waits = "import octavo_test_gate as gate\ngate.is_importing.set()\nassert gate.is_loading.wait(300)\n"
    install(
        "a_signal", "def signal():\n    import octavo_test_gate\n    octavo_test_gate.is_loading.set()\n", ":signal"
    )
    module = install("b_slow", waits + SPEC.format(name="SlowSpec") + at_import)

    def load_plugins():
        assert gate.is_importing.wait(300)
        return names(fresh.registered_specs())

    results = run_at_once([lambda: __import__(module).__name__, load_plugins])
    assert results == [module, {"SlowSpec"}]
    assert fresh.plugin_failures() == ()
