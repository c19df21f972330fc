"""The registry: who serves a spec, who may join its group, and what strangers' plug-ins can do to it."""

import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

from octavo.blocks import ResumeRuleManager
from octavo.errors import ConflictingRegistrationError, InvalidRegistrationError, SpecError, UnregisteredSpecError
from octavo.planning import plan_kv_cache
from octavo.specs import (
    FullAttentionSpec,
    HiddenStateCacheSpec,
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
from octavo.specs.registry import BUILT_IN
from octavo.testing import strategies
from rigs.some_specs import FULL, InheritedSpec, OtherManager, SomeManager, UnknownSpec, run_at_once

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
