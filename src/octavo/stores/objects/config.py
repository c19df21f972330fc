"""`ObjectsConfig`: everything that a person can configure of an object store tier.

{"url": "s3://bucket/prefix", "endpoint": "https://store.local", "path_style": true}
"""

from pathlib import Path
from typing import Annotated

from msgspec import Meta, field

from octavo.settings import Seconds, Settings, Size
from octavo.stores import RemoteLimits

_LIMITS = RemoteLimits()


class ObjectsConfig(Settings, frozen=True, kw_only=True):
    """Where the objects are, and what bounds the traffic."""

    what = "object store tier"

    url: Annotated[
        str,
        Meta(
            pattern=r"^((s3|gs|az)://[A-Za-z0-9][A-Za-z0-9._-]+(/|$)|file:///)",
            description="s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder",
        ),
    ]
    """A store that engines share: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder."""
    endpoint: Annotated[str, Meta(pattern=r"^https?://[^/\s]+", description="https://host:port")] | None = None
    """The store's own address, for one that is not the cloud's: https://store.local:9000."""
    region: str | None = None
    """The region of the bucket."""
    path_style: bool = True
    """With an endpoint: whether the bucket stands in the path of a request, rather than in the name of the host."""
    ca_file: Path | None = None
    """Certificates of the authority that has signed the store's own, in PEM."""
    key_file: Path | None = None
    """A file with 32 bytes in hex or base64: what is stored is encrypted with it. Without it, OCTAVO_STORE_KEY may hold
    the key itself."""
    queue_bytes: Size = field(name="queue_size", default=_LIMITS.queue_bytes)
    """The most bytes of all stores in flight, and of all loads in flight."""
    find_s: Seconds = field(name="find_seconds", default=_LIMITS.find_s)
    """How long the store may take to say what it has of a prompt."""
    load_s: Seconds = field(name="load_seconds", default=_LIMITS.load_s)
    """How long one load may take."""
    store_s: Seconds = field(name="store_seconds", default=_LIMITS.store_s)
    """How long one store may take."""
    remember_s: Seconds = field(name="remember_seconds", default=_LIMITS.remember_s)
    """How long an answer of the store holds. What other engines store meanwhile is found after that."""

    @property
    def limits(self) -> RemoteLimits:
        return RemoteLimits(
            queue_bytes=self.queue_bytes,
            find_s=self.find_s,
            load_s=self.load_s,
            store_s=self.store_s,
            remember_s=self.remember_s,
        )
