"""Tiers by the name that a configuration gives: those that are built in, and those that packages bring.

[project.entry-points."octavo.offloading_specs"]
mine = "my_package:MySpec"
"""

from collections.abc import Mapping
from typing import Any

from octavo.errors import InputError
from octavo.registry import ClassRegistry
from octavo.tiers.base import OffloadingSpec

TIERS = ClassRegistry[OffloadingSpec](
    "tier",
    OffloadingSpec,
    "octavo.offloading_specs",
    {
        "disk": "octavo.tiers.disk:DiskSpec",
        "mooncake": "octavo.stores.mooncake:MooncakeSpec",
        "objects": "octavo.stores.objects:ObjectsSpec",
        "redis": "octavo.stores.redis:RedisSpec",
        "zstd": "octavo.tiers.zstd:ZstdSpec",
    },
)


def spec_from_config(config: object) -> OffloadingSpec:
    """The spec that `{type: NAME, ...}` asks for, checked; nothing is opened."""
    if not isinstance(config, Mapping) or not isinstance(config.get("type"), str):
        raise InputError(f"a tier is a mapping with a type ({', '.join(TIERS.names())}), not {config!r}")
    settings: dict[str, Any] = {str(key): value for key, value in config.items()}
    return TIERS.find(settings.pop("type")).from_config(settings)
