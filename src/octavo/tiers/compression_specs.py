"""Configuration of compressed tiers: a codec's settings, and the tier that it lies upon.

{type: zstd, element_bytes: 2, level: 1, tier: {type: disk, path: ..., size: ...}}
{type: int8, lossy: int8, elements: [bf16, raw], row_elements: 128, tier: {...}}
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from octavo.errors import InputError
from octavo.settings import take_nothing_else, take_whole
from octavo.tiers.base import OffloadingSpec, TierContext
from octavo.tiers.codecs import ELEMENTS, HEADER_BYTES, Int8Rows, ZstdPlanes
from octavo.tiers.compressed import CompressedTier
from octavo.tiers.registry import spec_from_config

_ELEMENT_BYTES = (1, 2, 4)
_MOST_LEVEL = 22
_MOST_ROW_ELEMENTS = 1 << 20
T = TypeVar("T")


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
            element_bytes=_take_by_group(values, "element_bytes", (2,), _ELEMENT_BYTES),
            level=take_whole(values, "level", 1, most=_MOST_LEVEL),
            tier=_take_tier(values),
        )
        take_nothing_else(values, "zstd tier", ("element_bytes", "level", "tier"))
        return spec

    def build(self, context: TierContext) -> CompressedTier:
        codec = ZstdPlanes(self.element_bytes, self.level)  # first: it may be missing, and opens nothing
        return CompressedTier(self.tier.build(_for_encoded(context)), codec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Spec(OffloadingSpec):
    """Floating point as int8 with a scale for each row, in another tier: lossy."""

    name: ClassVar[str] = "int8"

    elements: tuple[str, ...]
    """Of each group; the last one is of all groups that follow. `raw` leaves a group as it is."""
    row_elements: int = 128
    tier: OffloadingSpec

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Int8Spec":
        values = dict(config)
        if values.pop("lossy", None) != "int8":
            raise InputError("an int8 tier changes what models compute: say that you want it with `lossy: int8`")
        if "elements" not in values:
            raise InputError(f"an int8 tier must know what the elements are: elements: one of {', '.join(ELEMENTS)}")
        spec = cls(
            elements=_take_by_group(values, "elements", (), ELEMENTS),
            row_elements=take_whole(values, "row_elements", 128, most=_MOST_ROW_ELEMENTS),
            tier=_take_tier(values),
        )
        take_nothing_else(values, "int8 tier", ("lossy", "elements", "row_elements", "tier"))
        return spec

    def build(self, context: TierContext) -> CompressedTier:
        return CompressedTier(self.tier.build(_for_encoded(context)), Int8Rows(self.elements, self.row_elements))


def _take_by_group(values: dict[str, Any], key: str, default: tuple[T, ...], choices: tuple[T, ...]) -> tuple[T, ...]:
    """One value for all groups, or a list by group."""
    value = values.pop(key, default)
    each = tuple(value) if isinstance(value, list | tuple) else (value,)
    for choice in each or (None,):
        if choice not in choices or isinstance(choice, bool):
            raise InputError(f"{key} must be one of {', '.join(map(str, choices))}, or a list of them, not {value!r}")
    return each


def _take_tier(values: dict[str, Any]) -> OffloadingSpec:
    inner = spec_from_config(values.pop("tier", None))
    if isinstance(inner, ZstdSpec | Int8Spec):
        raise InputError(f"a compressed tier cannot lie upon another one ({inner.name}): leave one of them out")
    return inner


def _for_encoded(context: TierContext) -> TierContext:
    return replace(context, max_chunk_bytes=context.max_chunk_bytes + HEADER_BYTES)
