"""Extensions by key: built in, registered by code, or brought by packages through entry points.

    [project.entry-points."octavo.eviction_policies"]
    mine = "my_package:MyPolicy"

A class may stand as `"module:Class"`, which is imported on first use. The same registration twice changes nothing; a
conflicting one raises and names both. If two packages conflict, only a lookup of that key raises. What is built in
cannot be replaced. A package that fails does not affect others.
"""

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from typing import Generic, TypeVar, cast

from octavo.errors import ConflictingRegistrationError, InputError, InvalidRegistrationError

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
ClassT = TypeVar("ClassT", bound=type)
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFailure:
    """A package's entry point that was refused; nothing that it registered remains."""

    name: str
    cause: str


class Registry(Generic[K, V]):
    """Values by key. Entry points are loaded once, at the first lookup of a key that is not registered yet."""

    def __init__(
        self,
        group: str,
        built_in: Mapping[K, V],
        bring: Callable[[EntryPoint], None],
        *,
        is_same: Callable[[V, V], bool],
        remedy: str,
    ) -> None:
        """`bring` registers what an entry point of the group names, and may raise anything. `remedy` tells the owner of
        a conflicting registration what to do."""
        self._group = group
        self._built_in = built_in
        self._bring = bring
        self._is_same = is_same
        self._remedy = remedy
        self._lock = threading.Lock()
        """Guards the fields below. Never held while a module is imported: the thread that imports it may want it."""
        self._entries = dict(built_in)
        self._conflicts: dict[K, str] = {}
        """Keys that two packages registered differently, each with the complaint."""
        self._failures: list[PluginFailure] = []
        self._plugins_lock = threading.RLock()
        """Held while entry points are loaded, so that a lookup in another thread waits for all of them."""
        self._has_plugins = False

    def register(self, key: K, value: V) -> None:
        with self._lock:
            known = self._entries.setdefault(key, value)
        if known is not value and not self._is_same(known, value):
            raise ConflictingRegistrationError(
                f"{_shown(key)} is registered as {_shown(known)}; it cannot also be {_shown(value)}. {self._remedy}",
                key=key,
            )

    def find(self, *keys: K) -> V | None:
        """The value of the first of these keys that is registered. Entry points are not waited for if that is the
        very first key: a module that is being imported may ask for what it registers, while the thread that takes
        the entry points in waits for the module."""
        with self._lock:
            is_known = keys[0] in self._entries
        if not is_known:
            self.load_plugins()
        with self._lock:
            found = next((key for key in keys if key in self._entries), None)
            if found is None:
                return None
            if conflict := self._conflicts.get(found):
                raise ConflictingRegistrationError(conflict, key=found)
            return self._entries[found]

    def key_of(self, value: V) -> K | None:
        """The key by which a value is registered; None if it is not. Loads no entry points."""
        with self._lock:
            return next((key for key, known in self._entries.items() if self._is_same(known, value)), None)

    def keys(self) -> tuple[K, ...]:
        """All keys, built-in ones first."""
        self.load_plugins()
        with self._lock:
            return tuple(self._entries)

    def failures(self) -> tuple[PluginFailure, ...]:
        """The entry points that were refused, with their causes."""
        self.load_plugins()
        with self._lock:
            return tuple(self._failures)

    def load_plugins(self) -> None:
        """Loads all entry points of the group, the first time only."""
        with self._plugins_lock:
            if self._has_plugins:
                return
            self._has_plugins = True  # first: a package's own lookup comes back here, in the same thread
            for entry_point in sorted(entry_points(group=self._group), key=lambda point: (point.name, point.value)):
                try:
                    self._bring(entry_point)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a package does, the others must load
                    self._refuse(entry_point, error)

    def _refuse(self, entry_point: EntryPoint, error: BaseException) -> None:
        failure = PluginFailure(name=entry_point.name, cause=f"{type(error).__name__}: {error}")
        logger.warning("plug-in %s (%s) was not loaded: %s", entry_point.name, entry_point.value, failure.cause)
        with self._lock:
            self._failures.append(failure)
            if isinstance(error, ConflictingRegistrationError) and error.key not in self._built_in:
                self._conflicts[cast("K", error.key)] = (
                    f"{error} The entry point {entry_point.name} = {entry_point.value} of {self._group} wants the "
                    "latter: uninstall one of the two packages"
                )

    @contextmanager
    def undone_if_it_fails(self, is_undone: Callable[[K], bool]) -> Iterator[None]:
        """Forgets what is registered inside if the block raises, as far as `is_undone` says so of its key."""
        with self._lock:
            before = set(self._entries)
        try:
            yield
        except BaseException:
            with self._lock:
                for key in self._entries.keys() - before:
                    if is_undone(key):
                        del self._entries[key]
            raise

    @contextmanager
    def scoped(self, *, fresh: bool = False) -> Iterator[None]:
        """Forgets at its end what was registered inside it: for tests. `fresh` begins as a new process does; but a
        module that is imported for the first time inside it registers only there."""
        if not fresh:
            self.load_plugins()
        with self._plugins_lock, self._lock:
            saved = dict(self._entries), dict(self._conflicts), list(self._failures), self._has_plugins
            if fresh:
                self._entries, self._conflicts = dict(self._built_in), {}
                self._failures, self._has_plugins = [], False
        try:
            yield
        finally:
            with self._plugins_lock, self._lock:
                self._entries, self._conflicts, self._failures, self._has_plugins = saved


class ClassRegistry(Generic[T]):
    """Subclasses of one base class by name, as a configuration gives it."""

    def __init__(self, noun: str, base: type, group: str, built_in: Mapping[str, str]) -> None:
        """`built_in` has a `"module:Class"` for each name."""
        self._noun = noun
        self._base = base
        self._classes = Registry[str, type | str](
            group, dict(built_in), self._bring, is_same=is_same_path, remedy="Choose another name."
        )

    def register(self, name: str) -> Callable[[ClassT], ClassT]:
        """Decorates a class to register it; returns the class."""

        def register(found: ClassT) -> ClassT:
            self._classes.register(name, import_class(found, self._base))
            return found

        return register

    def names(self) -> list[str]:
        return sorted(self._classes.keys())

    def find(self, name: str) -> type[T]:
        """The class of a name. Raises InputError if the name is unknown, or its class cannot be imported."""
        found = self._classes.find(name)
        if found is None:
            raise InputError(f"{self._noun} {name!r} is not known; choose one of: {', '.join(self.names())}")
        try:
            return cast("type[T]", import_class(found, self._base))
        except InvalidRegistrationError as error:
            raise InputError(f"{self._noun} {name!r}: {error}") from error

    def name_of(self, found: type[T]) -> str:
        """The name of a class; one that is not registered goes by its own."""
        return self._classes.key_of(found) or found.__name__

    def scoped(self, *, fresh: bool = False) -> AbstractContextManager[None]:
        """Like `Registry.scoped`."""
        return self._classes.scoped(fresh=fresh)

    def _bring(self, entry_point: EntryPoint) -> None:
        self._classes.register(entry_point.name, entry_point.value)


def import_class(found: object, base: type) -> type:
    """A class, or the one that `"module:Class"` names. InvalidRegistrationError if it is no subclass of `base`."""
    if isinstance(found, str):
        try:
            module, _, name = found.partition(":")
            found = attrgetter(name)(import_module(module))
        except Exception as error:
            raise InvalidRegistrationError(f"{found} cannot be imported: {type(error).__name__}: {error}") from error
    if isinstance(found, type) and issubclass(found, base):
        return found
    raise InvalidRegistrationError(f"{found!r} is not a subclass of {base.__name__}")


def check_path(path: str) -> None:
    """InvalidRegistrationError unless this is `"module:Class"`; nothing is imported."""
    if not re.fullmatch(r"[\w.]+:[\w.]+", path):
        raise InvalidRegistrationError(f"{path!r} is not of the form module:Class")


def is_same_path(one: type | str, other: type | str) -> bool:
    """Whether two classes, or paths of classes, are written alike. Imports nothing."""
    return path_of(one) == path_of(other)


def path_of(found: type | str) -> str:
    return found if isinstance(found, str) else f"{found.__module__}:{found.__qualname__}"


def _shown(what: object) -> str:
    return what.__qualname__ if isinstance(what, type) else str(what)
