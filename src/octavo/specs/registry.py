"""Which manager serves which spec, and which specs may share a group.

Lookups walk the MRO, so a subclass of a registered spec needs no registration of its own. Plug-ins are loaded once,
before the first lookup of a class that nobody has registered.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import TypeVar, cast

from octavo.errors import ConflictingRegistrationError, InvalidRegistrationError, UnregisteredSpecError
from octavo.registry import PluginFailure, Registry, check_path, import_class, path_of
from octavo.specs import attention, encoder, state
from octavo.specs.base import KVCacheSpec, install_uniform_type_bases
from octavo.specs.manager import SingleTypeKVCacheManager
from octavo.specs.platform import Platform
from octavo.specs.uniform import UniformTypeKVCacheSpecs

ENTRY_POINT_GROUP = "octavo.kv_cache_specs"

ManagerClass = type[SingleTypeKVCacheManager]
SpecT = TypeVar("SpecT", bound=KVCacheSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheSpecMetadata:
    """What is registered for one spec class."""

    manager: ManagerClass | str
    """The manager class, or `"module:Class"`, which is imported on first use."""
    uniform_type_base_spec: type[KVCacheSpec]

    def __str__(self) -> str:
        return f"a spec with manager {path_of(self.manager)} and base {self.uniform_type_base_spec.__qualname__}"

    def has_manager_of(self, other: "KVCacheSpecMetadata") -> bool:
        """Whether both name one manager class, in whatever spelling."""
        if path_of(self.manager) == path_of(other.manager):
            return True
        try:
            return _import_manager(self.manager) is _import_manager(other.manager)
        except InvalidRegistrationError:
            return False

    def is_same(self, other: "KVCacheSpecMetadata") -> bool:
        return self.uniform_type_base_spec is other.uniform_type_base_spec and self.has_manager_of(other)


class KVCacheSpecRegistry:
    """Spec class -> manager class and uniform type, once per process."""

    @classmethod
    def register(
        cls,
        spec_cls: type[KVCacheSpec],
        manager_class: ManagerClass | str,
        uniform_type_base_spec: type[KVCacheSpec] | None = None,
    ) -> None:
        """Registers a spec class. The same again changes nothing; anything else for the same class raises."""
        _SPECS.register(spec_cls, _checked(spec_cls, manager_class, uniform_type_base_spec or spec_cls))

    @classmethod
    def get_metadata(cls, spec: KVCacheSpec | type[KVCacheSpec]) -> KVCacheSpecMetadata:
        """What is registered for a spec or its nearest ancestor; for a group, which has one manager, its layers'."""
        if isinstance(spec, UniformTypeKVCacheSpecs):
            return _metadata_of_group(spec)
        metadata = _find(spec)
        if metadata is None:
            raise UnregisteredSpecError(_describe_unregistered([_class_of(spec).__qualname__]))
        return metadata

    @classmethod
    def get_manager_class(cls, spec: KVCacheSpec | type[KVCacheSpec]) -> ManagerClass:
        """The manager class that serves a spec or a group."""
        return _import_manager(cls.get_metadata(spec).manager)

    @classmethod
    def get_uniform_type_base_spec(cls, spec: KVCacheSpec | type[KVCacheSpec]) -> type[KVCacheSpec]:
        """The class that all layers of a spec's group derive from."""
        return cls.get_metadata(spec).uniform_type_base_spec

    @classmethod
    def check_kv_cache_spec_registry(cls, specs: Mapping[str, KVCacheSpec]) -> None:
        """Raises UnregisteredSpecError that names every layer whose spec nobody registered."""
        _SPECS.load_plugins()  # so that conflicts between them are told before a plan is made
        missing = [f"{layer} ({type(spec).__qualname__})" for layer, spec in specs.items() if _find(spec) is None]
        if missing:
            raise UnregisteredSpecError(_describe_unregistered(missing))

    @classmethod
    def registered_specs(cls) -> tuple[type[KVCacheSpec], ...]:
        """Every registered spec class, built-ins first."""
        return _SPECS.keys()

    @classmethod
    def plugin_failures(cls) -> tuple[PluginFailure, ...]:
        """The plug-ins that could not be loaded, with their causes."""
        return _SPECS.failures()

    @classmethod
    def scoped(cls, *, fresh: bool = False) -> AbstractContextManager[None]:
        """Forgets at its end what was registered inside it: for tests. `fresh` begins as a new process does."""
        return _SPECS.scoped(fresh=fresh)


def register_kv_cache_spec(
    manager_class: ManagerClass | str, uniform_type_base_spec: type[KVCacheSpec] | None = None
) -> Callable[[type[SpecT]], type[SpecT]]:
    """Decorates a spec class to register it; returns the class."""

    def register(spec_cls: type[SpecT]) -> type[SpecT]:
        KVCacheSpecRegistry.register(spec_cls, manager_class, uniform_type_base_spec)
        return spec_cls

    return register


def _find(spec: KVCacheSpec | type[KVCacheSpec]) -> KVCacheSpecMetadata | None:
    return _SPECS.find(*cast("tuple[type[KVCacheSpec], ...]", _class_of(spec).__mro__))


def _class_of(spec: KVCacheSpec | type[KVCacheSpec]) -> type[KVCacheSpec]:
    """The class to look up; a group's is its first layer's."""
    if isinstance(spec, UniformTypeKVCacheSpecs):
        return type(spec.first)
    return spec if isinstance(spec, type) else type(spec)


def _metadata_of_group(group: UniformTypeKVCacheSpecs) -> KVCacheSpecMetadata:
    first_layer, first = next(iter(group.specs.items()))
    served = KVCacheSpecRegistry.get_metadata(first)
    for layer, spec in group.specs.items():
        other = KVCacheSpecRegistry.get_metadata(spec)
        if other is not served and not other.has_manager_of(served):
            raise ConflictingRegistrationError(
                f"layers {first_layer} ({type(first).__qualname__}) and {layer} ({type(spec).__qualname__}) share a "
                f"group, but their managers are {path_of(served.manager)} and {path_of(other.manager)}: register both "
                f"with one manager, or one of them with a uniform_type_base_spec of its own",
                key=type(spec),
            )
    return served


def _describe_unregistered(what: list[str]) -> str:
    remedy = "Decorate the class with @register_kv_cache_spec(manager), or derive it from a registered spec."
    failed = "".join(f" Plug-in {f.name!r} was not loaded ({f.cause})." for f in _SPECS.failures())
    return f"no manager is registered for: {', '.join(what)}. {remedy}{failed}"


def _bring(entry_point: EntryPoint) -> None:
    """Runs a plug-in. If it fails, its own specs are forgotten, but not those of a package that it imported."""
    package = _package(entry_point.module)
    with _SPECS.undone_if_it_fails(lambda spec_cls: _package(spec_cls.__module__) == package):
        _run_plugin(entry_point.load())


def _run_plugin(plugin: object) -> None:
    if isinstance(plugin, type) and issubclass(plugin, Platform):
        plugin.register_custom_kv_cache_specs()
    elif isinstance(plugin, ModuleType) or (isinstance(plugin, type) and issubclass(plugin, KVCacheSpec)):
        pass  # importing it ran its decorators
    elif callable(plugin):
        plugin()
    else:
        raise InvalidRegistrationError(
            f"{plugin!r} is neither a Platform, a spec class, a module nor a function without arguments"
        )


def _checked(spec_cls: object, manager: object, base: object) -> KVCacheSpecMetadata:
    if not (isinstance(spec_cls, type) and issubclass(spec_cls, KVCacheSpec)):
        raise InvalidRegistrationError(f"{spec_cls!r} is not a subclass of KVCacheSpec")
    if not (isinstance(base, type) and issubclass(base, KVCacheSpec) and issubclass(spec_cls, base)):
        raise InvalidRegistrationError(
            f"{spec_cls.__qualname__} must derive from its uniform_type_base_spec {base}, because layers of one group "
            "are recognised by it"
        )
    if isinstance(manager, str):
        check_path(manager)
        return KVCacheSpecMetadata(manager=manager, uniform_type_base_spec=base)
    return KVCacheSpecMetadata(manager=_import_manager(manager), uniform_type_base_spec=base)


def _import_manager(manager: object) -> ManagerClass:
    return cast("ManagerClass", import_class(manager, SingleTypeKVCacheManager))


def _package(module: str) -> str:
    return module.partition(".")[0]


_RULE = "octavo.blocks.managers:ResumeRuleManager"
_STATE = "octavo.blocks.state_manager:CheckpointManager"
_ENCODER = "octavo.blocks.managers:EncoderBlocksManager"
_CIRCULAR = "octavo.blocks.managers:CircularBufferManager"

BUILT_IN: Mapping[type[KVCacheSpec], KVCacheSpecMetadata] = {
    spec_cls: KVCacheSpecMetadata(manager=manager, uniform_type_base_spec=base)
    for spec_cls, manager, base in (
        (attention.FullAttentionSpec, _RULE, attention.FullAttentionSpec),
        (attention.MLAAttentionSpec, _RULE, attention.FullAttentionSpec),
        (attention.TQFullAttentionSpec, _RULE, attention.FullAttentionSpec),
        (attention.SinkFullAttentionSpec, _RULE, attention.FullAttentionSpec),
        (attention.HiddenStateCacheSpec, _RULE, attention.HiddenStateCacheSpec),
        (attention.SlidingWindowSpec, _RULE, attention.SlidingWindowSpec),
        (attention.SlidingWindowMLASpec, _RULE, attention.SlidingWindowMLASpec),
        (attention.ChunkedLocalAttentionSpec, _RULE, attention.ChunkedLocalAttentionSpec),
        (attention.CircularBufferSpec, _CIRCULAR, attention.CircularBufferSpec),
        (state.MambaSpec, _STATE, state.MambaSpec),
        (encoder.CrossAttentionSpec, _ENCODER, encoder.CrossAttentionSpec),
        (encoder.EncoderOnlyAttentionSpec, _RULE, encoder.EncoderOnlyAttentionSpec),
    )
}

_SPECS = Registry[type[KVCacheSpec], KVCacheSpecMetadata](
    ENTRY_POINT_GROUP,
    BUILT_IN,
    _bring,
    is_same=KVCacheSpecMetadata.is_same,
    remedy="Derive a class of your own and register that.",
)
install_uniform_type_bases(KVCacheSpecRegistry.get_uniform_type_base_spec)
