"""`SharedConfig`: the store that engines share, which its url tells the kind of."""

from typing import Annotated, Any

from msgspec import Meta, field

from octavo.errors import InputError
from octavo.settings import Seconds
from octavo.stores import RemoteConfig, RemoteSpec
from octavo.stores.objects import ObjectsConfig, ObjectsSpec
from octavo.stores.redis import RedisConfig, RedisSpec

_KEEP_S = 7 * 86400.0


class SharedConfig(RemoteConfig, frozen=True, kw_only=True):
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
    endpoint: Annotated[str, Meta(pattern=r"^https?://[^/\s]+", description="https://host:port")] | None = None
    """The store's own address, for one that is not the cloud's: https://store.local:9000."""
    region: str | None = None
    """The region of the bucket."""
    path_style: bool = True
    """With an endpoint: whether the bucket stands in the path of a request, rather than in the name of the host."""
    keep_s: Seconds = field(name="keep_seconds", default=_KEEP_S)
    """How long Redis keeps a chunk after it was stored or loaded. A bucket has lifecycle rules instead."""

    @property
    def spec(self) -> RemoteSpec:
        """What builds its tier. InputError for a setting of the other kind."""
        if self.url.startswith(("redis://", "rediss://", "unix://")):
            if self.endpoint is not None or self.region is not None:
                raise InputError("shared: endpoint and region are for object stores: leave them out")
            return RedisSpec(RedisConfig(**self._settings_of(RedisConfig)))
        if self.keep_s != _KEEP_S:
            raise InputError("shared: keep_seconds is for Redis: give the bucket a lifecycle rule instead")
        return ObjectsSpec(ObjectsConfig(**self._settings_of(ObjectsConfig)))

    def _settings_of(self, kind: type[RemoteConfig]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in kind.__struct_fields__}
