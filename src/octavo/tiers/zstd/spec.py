"""Configuration of a zstd tier: its settings, and the tier that it lies upon.

{type: zstd, element_bytes: 2, level: 1, tier: {type: disk, path: ..., size: ...}}
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from octavo.errors import InputError
from octavo.extras import load_package
from octavo.settings import Settings
from octavo.tiers.base import OffloadingSpec, TierContext
from octavo.tiers.registry import spec_from_config
from octavo.tiers.zstd.codec import FORMAT, HEADER_BYTES, ZstdPlanes
from octavo.tiers.zstd.tier import ZstdTier

ElementBytes = Annotated[Literal[1, 2, 4], Meta(description="1, 2 or 4")]


class ZstdConfig(Settings, frozen=True, kw_only=True):
    """How chunks are encoded, and where they go."""

    what = "zstd tier"
    readers = {OffloadingSpec: spec_from_config}  # noqa: RUF012 - a ClassVar of the base

    element_bytes: (
        ElementBytes | Annotated[tuple[ElementBytes, ...], Meta(min_length=1, description="a list of them")]
    ) = 2
    """Bytes of an element: one number for all groups, or a list by group whose last number holds for all further
    groups."""
    level: Annotated[int, Meta(ge=1, le=22)] = 1
    tier: Annotated[
        OffloadingSpec,
        Meta(description="the tier below it, such as {type: disk, path: /var/cache/octavo, size: 100GiB}"),
    ]

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.tier, ZstdSpec):
            raise InputError("it cannot lie upon another one: leave one of them out")


@dataclass(frozen=True, slots=True)
class ZstdSpec(OffloadingSpec):
    """zstd on byte planes of another tier's chunks: lossless."""

    name: ClassVar[str] = "zstd"

    config: ZstdConfig

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "ZstdSpec":
        return cls(ZstdConfig.from_mapping(config))

    @property
    def asks_ahead(self) -> bool:
        return self.config.tier.asks_ahead

    def check(self) -> None:
        load_package("zstandard", "a zstd tier")
        self.config.tier.check()

    def build(self, context: TierContext) -> ZstdTier:
        widths = self.config.element_bytes
        codec = ZstdPlanes(widths if isinstance(widths, tuple) else (widths,), self.config.level)  # opens nothing
        namespace = sha256(context.namespace + FORMAT).digest()[: len(context.namespace)]
        encoded = replace(
            context,
            namespace=namespace,
            max_chunk_bytes=context.max_chunk_bytes + HEADER_BYTES,
            identity={**context.identity, "codec": FORMAT.decode()} if context.identity else {},
        )
        return ZstdTier(self.config.tier.build(encoded), codec)
