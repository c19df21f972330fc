"""Configuration of a zstd tier: its settings, and the tier that it lies upon.

{type: zstd, element_bytes: 2, level: 1, tier: {type: disk, path: ..., size: ...}}
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from octavo.errors import InputError
from octavo.settings import take_nothing_else, take_whole
from octavo.tiers.base import OffloadingSpec, TierContext
from octavo.tiers.registry import spec_from_config
from octavo.tiers.zstd.codec import HEADER_BYTES, WIDTHS, ZstdPlanes
from octavo.tiers.zstd.tier import ZstdTier

_MOST_LEVEL = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class ZstdSpec(OffloadingSpec):
    """zstd on byte planes of another tier's chunks: lossless."""

    name: ClassVar[str] = "zstd"

    element_bytes: tuple[int, ...] = (2,)
    """Of each group's elements; the last one is of all groups that follow."""
    level: int = 1
    tier: OffloadingSpec

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "ZstdSpec":
        values = dict(config)
        spec = cls(
            element_bytes=_take_element_bytes(values),
            level=take_whole(values, "level", 1, most=_MOST_LEVEL),
            tier=spec_from_config(values.pop("tier", None)),
        )
        take_nothing_else(values, "zstd tier", ("element_bytes", "level", "tier"))
        if isinstance(spec.tier, ZstdSpec):
            raise InputError("a zstd tier cannot lie upon another one: leave one of them out")
        return spec

    def build(self, context: TierContext) -> ZstdTier:
        codec = ZstdPlanes(self.element_bytes, self.level)  # first: it may be missing, and opens nothing
        encoded = replace(context, max_chunk_bytes=context.max_chunk_bytes + HEADER_BYTES)
        return ZstdTier(self.tier.build(encoded), codec)


def _take_element_bytes(values: dict[str, Any]) -> tuple[int, ...]:
    """One value for all groups, or a list by group."""
    value = values.pop("element_bytes", 2)
    each = tuple(value) if isinstance(value, list | tuple) else (value,)
    for choice in each or (None,):
        if choice not in WIDTHS or isinstance(choice, bool):
            raise InputError(f"element_bytes must be one of {', '.join(map(str, WIDTHS))}, or a list, not {value!r}")
    return each
