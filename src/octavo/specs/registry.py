"""Which manager serves which spec, and which specs may share a group.

Built-in specs and plug-ins are registered on first use, once, under a lock; so a hook that runs before that gives
the same registry as one that runs after.
"""

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import ClassVar, TypeVar

from octavo.errors import ConflictingRegistrationError, InvalidRegistrationError, UnregisteredSpecError
from octavo.specs import attention, encoder, state
from octavo.specs.base import KVCacheSpec
from octavo.specs.manager import SingleTypeKVCacheManager
from octavo.specs.platform import Platform
from octavo.specs.uniform import UniformTypeKVCacheSpecs

ENTRY_POINT_GROUP = "octavo.kv_cache_specs"

ManagerClass = type[SingleTypeKVCacheManager]
SpecT = TypeVar("SpecT", bound=KVCacheSpec)
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheSpecMetadata:
    """What is registered for one spec class."""

    manager: ManagerClass | str
    """The manager class, or `"module:Class"`, which is imported on first use."""
    uniform_type_base_spec: type[KVCacheSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFailure:
    """A plug-in that could not be loaded; nothing that it had registered remains."""

    name: str
    cause: str


class KVCacheSpecRegistry:
    """Spec class -> manager class and uniform type. Lookups walk the MRO, so a subclass of a registered spec needs no
    registration of its own."""

    _lock = threading.RLock()
    """Guards the fields below. Never held while a module is imported: the thread that imports it may want it."""
    _entries: ClassVar[dict[type[KVCacheSpec], KVCacheSpecMetadata]] = {}
    _plugin_failures: ClassVar[list[PluginFailure]] = []
    _plugins_lock = threading.RLock()
    """Held while plug-ins load, so that a lookup waits for all of them."""
    _are_plugins_loaded = False

    @classmethod
    def register(
        cls,
        spec_cls: type[KVCacheSpec],
        manager_class: ManagerClass | str,
        uniform_type_base_spec: type[KVCacheSpec] | None = None,
    ) -> None:
        """Registers a spec class. The same again changes nothing; anything else for the same class raises."""
        metadata = _checked(spec_cls, manager_class, uniform_type_base_spec or spec_cls)
        with cls._lock:
            cls._register_builtins()
            if spec_cls not in cls._entries:
                cls._entries[spec_cls] = metadata
                if _journal.is_loading:
                    _journal.registered.append(spec_cls)
            known = cls._entries[spec_cls]
        if known != metadata:
            raise ConflictingRegistrationError(
                f"{_name(spec_cls)} is registered with manager {_name(known.manager)} and base "
                f"{_name(known.uniform_type_base_spec)}; it cannot also have manager {_name(metadata.manager)} and "
                f"base {_name(metadata.uniform_type_base_spec)}. Derive a class of your own and register that."
            )

    @classmethod
    def get_metadata(cls, spec: KVCacheSpec | type[KVCacheSpec]) -> KVCacheSpecMetadata:
        """What is registered for a spec or its nearest ancestor."""
        metadata = cls._find(spec)
        if metadata is None:
            raise UnregisteredSpecError(cls._describe_unregistered([_name(_class_of(spec))]))
        return metadata

    @classmethod
    def get_manager_class(cls, spec: KVCacheSpec | type[KVCacheSpec]) -> ManagerClass:
        """The manager class that serves a spec; a group's is its layers'."""
        manager = cls.get_metadata(spec).manager
        return _import_manager(manager) if isinstance(manager, str) else manager

    @classmethod
    def get_uniform_type_base_spec(cls, spec: KVCacheSpec | type[KVCacheSpec]) -> type[KVCacheSpec]:
        """The class that all layers of a spec's group derive from."""
        return cls.get_metadata(spec).uniform_type_base_spec

    @classmethod
    def check_kv_cache_spec_registry(cls, specs: Mapping[str, KVCacheSpec]) -> None:
        """Raises UnregisteredSpecError that names every layer whose spec nobody registered."""
        missing = [f"{layer} ({_name(type(spec))})" for layer, spec in specs.items() if cls._find(spec) is None]
        if missing:
            raise UnregisteredSpecError(cls._describe_unregistered(missing))

    @classmethod
    def registered_specs(cls) -> tuple[type[KVCacheSpec], ...]:
        """Every registered spec class, built-ins first."""
        cls._load_plugins()
        with cls._lock:
            return tuple(cls._entries)

    @classmethod
    def plugin_failures(cls) -> tuple[PluginFailure, ...]:
        """The plug-ins that could not be loaded, with their causes."""
        cls._load_plugins()
        return tuple(cls._plugin_failures)

    @classmethod
    @contextmanager
    def scoped(cls, *, fresh: bool = False) -> Iterator[None]:
        """Forgets at its end what was registered inside it: for tests. `fresh` begins as a new process does; but a
        module that is imported for the first time inside it registers only there."""
        if not fresh:
            cls._load_plugins()
        with cls._plugins_lock, cls._lock:
            saved = dict(cls._entries), list(cls._plugin_failures), cls._are_plugins_loaded
            if fresh:
                cls._entries, cls._plugin_failures, cls._are_plugins_loaded = {}, [], False
        try:
            yield
        finally:
            with cls._plugins_lock, cls._lock:
                cls._entries, cls._plugin_failures, cls._are_plugins_loaded = saved

    @classmethod
    def _find(cls, spec: KVCacheSpec | type[KVCacheSpec]) -> KVCacheSpecMetadata | None:
        spec_cls = _class_of(spec)
        with cls._lock:
            cls._register_builtins()
            if spec_cls in cls._entries:  # final; so a module that a plug-in's loader waits for may look it up
                return cls._entries[spec_cls]
        cls._load_plugins()
        with cls._lock:
            return next((cls._entries[base] for base in spec_cls.__mro__ if base in cls._entries), None)

    @classmethod
    def _register_builtins(cls) -> None:
        """The caller holds the lock."""
        if not cls._entries:
            cls._entries.update(_BUILTINS)

    @classmethod
    def _load_plugins(cls) -> None:
        """Registers built-ins, then what every plug-in brings; the first time only."""
        if cls._are_plugins_loaded:
            return
        with cls._plugins_lock:
            if cls._are_plugins_loaded or _journal.is_loading:  # a plug-in's own lookup comes back here
                return
            with cls._lock:
                cls._register_builtins()
            for entry_point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda e: (e.name, e.value)):
                cls._load_plugin(entry_point)
            cls._are_plugins_loaded = True

    @classmethod
    def _load_plugin(cls, entry_point: EntryPoint) -> None:
        _journal.registered, _journal.is_loading = [], True
        try:
            _run_plugin(entry_point.load())
        except Exception as error:  # noqa: BLE001 - whatever a stranger's module does, the others must load
            with cls._lock:
                for spec_cls in _journal.registered:
                    if _package(spec_cls.__module__) == _package(entry_point.module):  # not what it imported
                        cls._entries.pop(spec_cls, None)
            failure = PluginFailure(name=entry_point.name, cause=f"{type(error).__name__}: {error}")
            cls._plugin_failures.append(failure)
            logger.warning("plug-in %s (%s) was not loaded: %s", entry_point.name, entry_point.value, failure.cause)
        finally:
            _journal.registered, _journal.is_loading = [], False

    @classmethod
    def _describe_unregistered(cls, what: list[str]) -> str:
        remedy = "Decorate the class with @register_kv_cache_spec(manager), or derive it from a registered spec."
        failed = "".join(f" Plug-in {f.name!r} was not loaded ({f.cause})." for f in cls.plugin_failures())
        return f"no manager is registered for: {', '.join(what)}. {remedy}{failed}"


def register_kv_cache_spec(
    manager_class: ManagerClass | str, uniform_type_base_spec: type[KVCacheSpec] | None = None
) -> Callable[[type[SpecT]], type[SpecT]]:
    """Decorates a spec class to register it; returns the class."""

    def register(spec_cls: type[SpecT]) -> type[SpecT]:
        KVCacheSpecRegistry.register(spec_cls, manager_class, uniform_type_base_spec)
        return spec_cls

    return register


class _Journal(threading.local):
    """What the plug-in that this thread is loading has registered, so that a failed one leaves nothing behind."""

    def __init__(self) -> None:
        self.registered: list[type[KVCacheSpec]] = []
        self.is_loading = False


_journal = _Journal()


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
            f"{_name(spec_cls)} must derive from its uniform_type_base_spec {_name(base)}, because layers of one "
            "group are recognised by it"
        )
    if isinstance(manager, str):
        if not _MANAGER_PATH.fullmatch(manager):
            raise InvalidRegistrationError(f"manager {manager!r} of {_name(spec_cls)} is not of the form module:Class")
        return KVCacheSpecMetadata(manager=manager, uniform_type_base_spec=base)
    return KVCacheSpecMetadata(manager=_checked_manager(manager), uniform_type_base_spec=base)


def _checked_manager(manager: object) -> ManagerClass:
    if isinstance(manager, type) and issubclass(manager, SingleTypeKVCacheManager):
        return manager
    raise InvalidRegistrationError(f"manager {manager!r} is not a subclass of SingleTypeKVCacheManager")


def _import_manager(path: str) -> ManagerClass:
    module, _, name = path.partition(":")
    try:
        manager = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidRegistrationError(f"manager {path!r} cannot be imported: {error}") from error
    return _checked_manager(manager)


def _class_of(spec: KVCacheSpec | type[KVCacheSpec]) -> type[KVCacheSpec]:
    """The class to look up; a group's is its first layer's."""
    if isinstance(spec, UniformTypeKVCacheSpecs):
        return type(spec.first)
    return spec if isinstance(spec, type) else type(spec)


def _package(module: str) -> str:
    return module.partition(".")[0]


def _name(what: object) -> str:
    return what.__qualname__ if isinstance(what, type) else str(what)


_MANAGER_PATH = re.compile(r"[\w.]+:\w+")
_RULE = "octavo.blocks.managers:ResumeRuleManager"
_STATE = "octavo.blocks.state_manager:CheckpointManager"
_ENCODER = "octavo.blocks.managers:EncoderBlocksManager"

_BUILTINS: dict[type[KVCacheSpec], KVCacheSpecMetadata] = {
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
        (state.MambaSpec, _STATE, state.MambaSpec),
        (encoder.CrossAttentionSpec, _ENCODER, encoder.CrossAttentionSpec),
        (encoder.EncoderOnlyAttentionSpec, _RULE, encoder.EncoderOnlyAttentionSpec),
    )
}
