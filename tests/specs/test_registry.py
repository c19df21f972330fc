"""The registry: who serves a spec, who may join its group, and what strangers' plug-ins can do to it."""

import logging
import re
import sys
import threading
from dataclasses import dataclass
from types import ModuleType

import pytest

from octavo.blocks import ResumeRuleManager
from octavo.errors import (
    ConflictingRegistrationError,
    InvalidRegistrationError,
    SpecError,
    UnregisteredSpecError,
)
from octavo.planning import plan_kv_cache
from octavo.specs import (
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheSpec,
    KVCacheSpecMetadata,
    KVCacheSpecRegistry,
    MLAAttentionSpec,
    Platform,
    RequestLimits,
    SingleTypeKVCacheManager,
    SinkFullAttentionSpec,
    SlidingWindowSpec,
    TQFullAttentionSpec,
    UniformTypeKVCacheSpecs,
    register_kv_cache_spec,
)
from octavo.specs.registry import BUILT_IN, ENTRY_POINT_GROUP
from octavo.testing import strategies
from rigs.plugins import plugin_folder

FULL = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64)


class SomeManager(SingleTypeKVCacheManager):
    """The registry makes no managers, so it may stay abstract."""


class OtherManager(SomeManager):
    pass


class UnknownSpec(KVCacheSpec):
    """Derives from no registered spec."""

    @property
    def unpadded_page_size_bytes(self):
        return self.block_size

    def needed_blocks(self, point):
        return ()

    def max_blocks_per_request(self, limits):
        return 0


@dataclass(frozen=True, kw_only=True)
class InheritedSpec(MLAAttentionSpec):
    """Derives from a registered spec, and is not registered."""


@pytest.fixture
def fresh():
    """A registry as a new process finds it."""
    with KVCacheSpecRegistry.scoped(fresh=True):
        yield KVCacheSpecRegistry


# Built-ins.


@pytest.mark.parametrize("kind", strategies.BUILTIN_KINDS, ids=lambda kind: kind.__name__)
def test_every_builtin_has_a_manager(kind):
    assert issubclass(KVCacheSpecRegistry.get_manager_class(kind), SingleTypeKVCacheManager)
    assert issubclass(kind, KVCacheSpecRegistry.get_uniform_type_base_spec(kind))


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (FullAttentionSpec, FullAttentionSpec),
        (MLAAttentionSpec, FullAttentionSpec),
        (TQFullAttentionSpec, FullAttentionSpec),
        (SinkFullAttentionSpec, FullAttentionSpec),
        (HiddenStateCacheSpec, HiddenStateCacheSpec),  # never joins an attention group
        (SlidingWindowSpec, SlidingWindowSpec),
    ],
)
def test_uniform_type_of_builtins(fresh, kind, base):
    assert fresh.get_uniform_type_base_spec(kind) is base


def test_threads_that_start_at_once_find_all_builtins(fresh):
    @dataclass(frozen=True, kw_only=True)
    class NewSpec(FullAttentionSpec):
        pass

    starts = [
        lambda: fresh.get_metadata(FULL).uniform_type_base_spec,
        lambda: fresh.get_uniform_type_base_spec(InheritedSpec),
        lambda: fresh.register(NewSpec, SomeManager) or FullAttentionSpec,
        lambda: fresh.registered_specs()[0],
    ]
    results = run_at_once([starts[i % len(starts)] for i in range(32)])
    assert results == [FullAttentionSpec] * 32
    assert list(fresh.registered_specs()) == [*BUILT_IN, NewSpec]


def run_at_once(functions):
    barrier = threading.Barrier(len(functions))
    results = [None] * len(functions)

    def run(index):
        barrier.wait(timeout=10)
        try:
            results[index] = functions[index]()
        except Exception as error:  # noqa: BLE001 - the assertion shows it
            results[index] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert not any(thread.is_alive() for thread in threads)
    return results


@pytest.mark.parametrize("is_hook_first", [True, False])
def test_a_hook_may_run_before_builtins_or_after(fresh, is_hook_first):
    class SomePlatform(Platform):
        @classmethod
        def register_custom_kv_cache_specs(cls):
            fresh.register(InheritedSpec, SomeManager, FullAttentionSpec)

    if is_hook_first:
        SomePlatform.register_custom_kv_cache_specs()
    else:
        fresh.get_metadata(FULL)
        SomePlatform.register_custom_kv_cache_specs()
    assert list(fresh.registered_specs()) == [*BUILT_IN, InheritedSpec]
    assert fresh.get_metadata(FULL) == BUILT_IN[FullAttentionSpec]
    assert fresh.get_manager_class(InheritedSpec) is SomeManager


def test_a_hook_that_runs_first_cannot_replace_a_builtin(fresh):
    with pytest.raises(ConflictingRegistrationError):
        fresh.register(FullAttentionSpec, SomeManager)


def test_the_default_platform_registers_nothing(fresh):
    class Plain(Platform):
        pass

    before = fresh.registered_specs()
    Plain.register_custom_kv_cache_specs()
    assert fresh.registered_specs() == before


# Registrations.


def test_the_same_again_changes_nothing(fresh):
    fresh.register(InheritedSpec, SomeManager, FullAttentionSpec)
    before = fresh.registered_specs()
    fresh.register(InheritedSpec, SomeManager, FullAttentionSpec)
    assert fresh.registered_specs() == before


@pytest.mark.parametrize(
    ("manager", "base"),
    [
        (OtherManager, FullAttentionSpec),
        (SomeManager, InheritedSpec),
        (SomeManager, None),
        ("a.b:C", FullAttentionSpec),
    ],
)
def test_a_conflict_names_both_and_changes_nothing(fresh, manager, base):
    fresh.register(InheritedSpec, SomeManager, FullAttentionSpec)
    with pytest.raises(ConflictingRegistrationError) as raised:
        fresh.register(InheritedSpec, manager, base)
    message = str(raised.value)
    for name in ("InheritedSpec", "SomeManager", "FullAttentionSpec", getattr(manager, "__name__", manager)):
        assert name in message
    assert fresh.get_metadata(InheritedSpec) == KVCacheSpecMetadata(
        manager=SomeManager, uniform_type_base_spec=FullAttentionSpec
    )


def test_a_spec_is_its_own_base_by_default(fresh):
    fresh.register(UnknownSpec, SomeManager)
    assert fresh.get_uniform_type_base_spec(UnknownSpec) is UnknownSpec


@pytest.mark.parametrize("thing", [int, "FullAttentionSpec", FULL, None])
def test_only_spec_classes_are_registered(fresh, thing):
    with pytest.raises(InvalidRegistrationError, match="is not a subclass of KVCacheSpec"):
        fresh.register(thing, SomeManager)


@pytest.mark.parametrize("base", [SlidingWindowSpec, InheritedSpec, int, FULL])
def test_a_spec_derives_from_its_base(fresh, base):
    with pytest.raises(InvalidRegistrationError, match="must derive from its uniform_type_base_spec"):
        fresh.register(TQFullAttentionSpec, SomeManager, base)


@pytest.mark.parametrize("manager", [int, object(), FULL, None])
def test_a_manager_is_a_manager_class(fresh, manager):
    with pytest.raises(InvalidRegistrationError, match="is not a subclass of SingleTypeKVCacheManager"):
        fresh.register(UnknownSpec, manager)
    assert UnknownSpec not in fresh.registered_specs()


@pytest.mark.parametrize("path", ["", "no_colon", "a:", ":B", "a:b c", "a/b:C"])
def test_a_managers_path_is_module_and_class(fresh, path):
    with pytest.raises(InvalidRegistrationError, match="is not of the form module:Class"):
        fresh.register(UnknownSpec, path)


def test_the_decorator_returns_the_class(fresh):
    class MySpec(UnknownSpec):
        pass

    assert register_kv_cache_spec(SomeManager)(MySpec) is MySpec
    assert fresh.get_manager_class(MySpec) is SomeManager
    assert fresh.get_manager_class(MySpec(block_size=1)) is SomeManager


def test_a_manager_and_its_path_are_the_same(fresh):
    """However it is spelled: the class, the module that defines it, the package that exports it."""
    for manager in (ResumeRuleManager, "octavo.blocks.managers:ResumeRuleManager", "octavo.blocks:ResumeRuleManager"):
        fresh.register(FullAttentionSpec, manager)
    with pytest.raises(ConflictingRegistrationError):
        fresh.register(FullAttentionSpec, "octavo.blocks:KVCacheManager")


# Lookups.


def test_a_subclass_of_a_registered_spec_needs_no_registration(fresh):
    assert fresh.get_metadata(InheritedSpec) == fresh.get_metadata(MLAAttentionSpec)
    fresh.check_kv_cache_spec_registry({"layer": InheritedSpec(block_size=16, head_size=64)})


def test_the_nearest_ancestor_answers(fresh):
    class Child(InheritedSpec):
        pass

    fresh.register(InheritedSpec, SomeManager)
    assert fresh.get_manager_class(Child) is SomeManager
    fresh.register(Child, OtherManager)
    assert fresh.get_manager_class(Child) is OtherManager
    assert fresh.get_manager_class(InheritedSpec) is SomeManager


def test_a_group_is_served_as_its_layers_are(fresh):
    fresh.register(InheritedSpec, SomeManager)
    layer = InheritedSpec(block_size=16, head_size=64)
    assert fresh.get_manager_class(UniformTypeKVCacheSpecs.of({"a": layer, "b": layer})) is SomeManager


def test_a_group_whose_layers_have_different_managers_is_refused(fresh):
    fresh.register(InheritedSpec, SomeManager, FullAttentionSpec)
    layers = {"layers.0": FULL, "layers.1": InheritedSpec(block_size=16, head_size=64)}
    named = r"layers\.0 \(FullAttentionSpec\) and layers\.1 \(InheritedSpec\).*ResumeRuleManager.*SomeManager"
    with pytest.raises(ConflictingRegistrationError, match=named):
        fresh.get_manager_class(UniformTypeKVCacheSpecs.of(layers))
    with pytest.raises(ConflictingRegistrationError, match=named):
        plan_kv_cache(layers, memory_bytes=1 << 30, limits=RequestLimits(max_model_len=1024))


def test_an_unregistered_spec_is_named(fresh):
    for ask in (fresh.get_metadata, fresh.get_manager_class, fresh.get_uniform_type_base_spec):
        with pytest.raises(UnregisteredSpecError, match=r"UnknownSpec.*@register_kv_cache_spec"):
            ask(UnknownSpec(block_size=1))


def test_every_unregistered_layer_is_named(fresh):
    layers = {"layers.0": FULL, "layers.1": UnknownSpec(block_size=1), "layers.7": UnknownSpec(block_size=2)}
    with pytest.raises(UnregisteredSpecError) as raised:
        fresh.check_kv_cache_spec_registry(layers)
    message = str(raised.value)
    assert "layers.1 (UnknownSpec), layers.7 (UnknownSpec)" in message
    assert "layers.0" not in message
    assert "Decorate the class" in message
    fresh.check_kv_cache_spec_registry({"layers.0": FULL})
    fresh.check_kv_cache_spec_registry({})


def test_an_unregistered_spec_joins_no_group_by_default(fresh):
    with pytest.raises(UnregisteredSpecError):
        UniformTypeKVCacheSpecs.of({"a": UnknownSpec(block_size=1)})


@pytest.fixture
def module(monkeypatch):
    """A module that can be imported, and holds what a test puts there."""
    made = ModuleType("octavo_test_managers")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_a_managers_path_is_resolved_on_first_use(fresh, module):
    fresh.register(UnknownSpec, "octavo_test_managers:Late")
    module.Late = SomeManager
    assert fresh.get_manager_class(UnknownSpec) is SomeManager


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("octavo_no_such_module:Manager", "No module named 'octavo_no_such_module'"),
        ("octavo_test_managers:Missing", "has no attribute 'Missing'"),
        ("octavo_test_managers:number", "is not a subclass of SingleTypeKVCacheManager"),
        ("octavo_test_managers:Spec", "is not a subclass of SingleTypeKVCacheManager"),
    ],
)
def test_a_path_that_leads_nowhere(fresh, module, path, message):
    module.number, module.Spec = 3, UnknownSpec
    fresh.register(UnknownSpec, path)
    with pytest.raises(InvalidRegistrationError, match=message):
        fresh.get_manager_class(UnknownSpec)


# Scopes.


def test_a_scope_forgets():
    before = KVCacheSpecRegistry.registered_specs()
    with KVCacheSpecRegistry.scoped():
        assert KVCacheSpecRegistry.registered_specs() == before
        KVCacheSpecRegistry.register(InheritedSpec, SomeManager)
        assert KVCacheSpecRegistry.get_manager_class(InheritedSpec) is SomeManager
    assert KVCacheSpecRegistry.registered_specs() == before


def test_a_scope_forgets_after_an_error():
    def fail_inside():
        with KVCacheSpecRegistry.scoped():
            KVCacheSpecRegistry.register(InheritedSpec, SomeManager)
            raise SpecError

    with pytest.raises(SpecError):
        fail_inside()
    assert InheritedSpec not in KVCacheSpecRegistry.registered_specs()


# Plug-ins: real entry points, as pip would install them.

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
    waits = "import octavo_test_gate as gate\ngate.is_importing.set()\nassert gate.is_loading.wait(10)\n"
    install(
        "a_signal", "def signal():\n    import octavo_test_gate\n    octavo_test_gate.is_loading.set()\n", ":signal"
    )
    module = install("b_slow", waits + SPEC.format(name="SlowSpec") + at_import)

    def load_plugins():
        assert gate.is_importing.wait(10)
        return names(fresh.registered_specs())

    results = run_at_once([lambda: __import__(module).__name__, load_plugins])
    assert results == [module, {"SlowSpec"}]
    assert fresh.plugin_failures() == ()
