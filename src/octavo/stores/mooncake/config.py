"""`MooncakeConfig`: everything that a person can configure of a Mooncake tier.

{"url": "mooncake://master:50051", "segment_size": "16GiB"}
"""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, field

from octavo.errors import InputError
from octavo.settings import Size
from octavo.stores import RemoteConfig

_LEAST_SEGMENT_BYTES = 16 << 20
"""Mooncake's library takes no smaller one."""


class MooncakeConfig(RemoteConfig, frozen=True, kw_only=True):
    """Where the master is, and what the engine gives to the pool."""

    what = "Mooncake tier"

    url: Annotated[str, Meta(pattern=r"^mooncake://[^/\s:]+:\d{1,5}$", description="mooncake://host:port")]
    """The master of a pool that engines share: mooncake://host:port."""
    segment_bytes: Size | None = field(name="segment_size", default=None)
    """Memory of this machine that the engine gives to Mooncake's pool. Without it, the engine uses what others give."""
    buffer_bytes: Size = field(name="buffer_size", default=64 << 20)
    """Memory for bytes on their way to Mooncake's pool and back."""
    protocol: Literal["tcp", "rdma"] = "tcp"
    """How bytes go between machines of Mooncake's pool."""
    device: str = ""
    """With rdma: the names of the devices, with commas between them."""
    host: str = ""
    """The name or address at which others reach this machine's part of Mooncake's pool; without one, the address that
    reaches the master."""
    metadata_server: str = "P2PHANDSHAKE"
    """Where engines of Mooncake's pool learn of each other: http://host:8080/metadata, etcd://host:2379, or
    P2PHANDSHAKE for none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.segment_bytes and self.segment_bytes < _LEAST_SEGMENT_BYTES:
            raise InputError(f"segment_size must be 16MiB or more, or left out, not {self.segment_bytes:,}")

    @property
    def master(self) -> str:
        return urlsplit(self.url).netloc
