"""`SharedConfig`: the store that engines share, which its url tells the kind of."""

from typing import Annotated, Any

from msgspec import Meta, field

from octavo.errors import InputError
from octavo.settings import Seconds
from octavo.stores import RemoteConfig, RemoteSpec
from octavo.stores.mooncake import MooncakeConfig, MooncakeSpec
from octavo.stores.objects import ObjectsConfig, ObjectsSpec
from octavo.stores.redis import RedisConfig, RedisSpec

_KEEP_S = 7 * 86400.0
_PLAIN_MOONCAKE = MooncakeConfig(url="mooncake://host:50051")


class SharedConfig(MooncakeConfig, frozen=True, kw_only=True):
    """An object store, Redis or Mooncake, whose settings it has from a base: a struct has but one."""

    what = ""

    url: Annotated[
        str,
        Meta(
            pattern=r"^((s3|gs|az)://[A-Za-z0-9][A-Za-z0-9._-]+(/|$)|file:///|rediss?://[^/\s]|unix:///|"
            r"mooncake://[^/\s:]+:\d{1,5}$)",
            description="s3://bucket/prefix, gs://, az://, file:///folder, redis://host:port/db or mooncake://host:port",
        ),
    ]
    """A store that engines share: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///folder,
    redis://host:port/db, or mooncake://host:port of Mooncake's master."""
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
        is_mooncake = self.url.startswith("mooncake://")
        is_redis = self.url.startswith(("redis://", "rediss://", "unix://"))
        if (is_mooncake or is_redis) and (self.endpoint is not None or self.region is not None):
            raise InputError("shared: endpoint and region are for object stores: leave them out")
        if not is_redis and self.keep_s != _KEEP_S:
            raise InputError("shared: keep_seconds is for Redis: give the bucket a lifecycle rule instead")
        if is_mooncake:
            return MooncakeSpec(MooncakeConfig(**self._settings_of(MooncakeConfig)))
        given = (
            name
            for name in set(MooncakeConfig.__struct_fields__) - set(RemoteConfig.__struct_fields__)
            if getattr(self, name) != getattr(_PLAIN_MOONCAKE, name)
        )
        if any(given):
            raise InputError(
                "shared: segment_size, buffer_size, protocol, device, host and metadata_server are for Mooncake: leave "
                "them out"
            )
        if is_redis:
            return RedisSpec(RedisConfig(**self._settings_of(RedisConfig)))
        return ObjectsSpec(ObjectsConfig(**self._settings_of(ObjectsConfig)))

    def _settings_of(self, kind: type[RemoteConfig]) -> dict[str, Any]:
        return {name: getattr(self, name) for name in kind.__struct_fields__}
