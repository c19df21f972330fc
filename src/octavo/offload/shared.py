"""`SharedConfig`: the store that engines share, which its url tells the kind of."""

from typing import Annotated

from msgspec import Meta, field

from octavo.errors import InputError
from octavo.settings import Seconds
from octavo.stores.objects import ObjectsConfig, ObjectsSpec
from octavo.stores.redis import RedisConfig, RedisSpec
from octavo.tiers import OffloadingSpec

_KEEP_S = 7 * 86400.0


class SharedConfig(ObjectsConfig, frozen=True, kw_only=True):
    """An object store, or Redis."""

    url: Annotated[
        str,
        Meta(
            pattern=r"^((s3|gs|az)://[A-Za-z0-9][A-Za-z0-9._-]+(/|$)|file:///|rediss?://[^/\s]|unix:///)",
            description="s3://bucket/prefix, gs://, az://, file:///folder or redis://host:port/db",
        ),
    ]
    """A store that engines share: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///folder, or
    redis://host:port/db."""
    keep_s: Seconds = field(name="keep_seconds", default=_KEEP_S)
    """How long Redis keeps a chunk after it was stored or loaded. A bucket has lifecycle rules instead."""

    @property
    def spec(self) -> OffloadingSpec:
        """What builds its tier. InputError for a setting of the other kind."""
        if self.url.startswith(("redis://", "rediss://", "unix://")):
            if self.endpoint is not None or self.region is not None:
                raise InputError("shared: endpoint and region are for object stores: leave them out")
            return RedisSpec(
                RedisConfig(
                    url=self.url,
                    ca_file=self.ca_file,
                    key_file=self.key_file,
                    keep_s=self.keep_s,
                    queue_bytes=self.queue_bytes,
                    find_s=self.find_s,
                    load_s=self.load_s,
                    store_s=self.store_s,
                    remember_s=self.remember_s,
                )
            )
        if self.keep_s != _KEEP_S:
            raise InputError("shared: keep_seconds is for Redis: give the bucket a lifecycle rule instead")
        return ObjectsSpec(self)
