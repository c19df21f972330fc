"""Tiers by the name that a configuration gives: those that are built in, and those that packages bring.

    [project.entry-points."octavo.offloading_specs"]
    mine = "my_package:MySpec"

A package that cannot be imported is named when its tier is asked for, and hides no other.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from octavo.errors import InputError
from octavo.tiers.base import OffloadingSpec

ENTRY_POINT_GROUP = "octavo.offloading_specs"

_BUILT_IN = {
    "disk": "octavo.tiers.disk:DiskSpec",
    "zstd": "octavo.tiers.zstd:ZstdSpec",
}


def spec_from_config(config: object) -> OffloadingSpec:
    """The spec that `{type: NAME, ...}` asks for, checked; nothing is opened."""
    if not isinstance(config, Mapping) or not isinstance(config.get("type"), str):
        raise InputError(f"a tier is a mapping with a type ({', '.join(known_types())}), not {config!r}")
    settings: dict[str, Any] = {str(key): value for key, value in config.items()}
    return find_spec(settings.pop("type")).from_config(settings)


def find_spec(name: str) -> type[OffloadingSpec]:
    try:
        found: object = _load(name)
    except Exception as error:
        raise InputError(f"tier {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if found is None:
        raise InputError(f"tier {name!r} is not known; choose one of: {', '.join(known_types())}")
    if not (isinstance(found, type) and issubclass(found, OffloadingSpec)):
        raise InputError(f"tier {name!r} is {found!r}, which is no OffloadingSpec")
    return found


def known_types() -> list[str]:
    return sorted({*_BUILT_IN, *(entry_point.name for entry_point in entry_points(group=ENTRY_POINT_GROUP))})


def _load(name: str) -> object:
    """None if nobody knows it. What is built in cannot be replaced."""
    if path := _BUILT_IN.get(name):
        module, _, attribute = path.partition(":")
        return getattr(import_module(module), attribute)
    for entry_point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        found: object = entry_point.load()
        return found
    return None
