"""`SharedConfig`: the store that engines share, which its url tells the kind of."""

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta
from msgspec.structs import fields

from octavo.errors import InputError
from octavo.settings import joined_settings
from octavo.stores import RemoteConfig, RemoteSpec
from octavo.stores.mooncake import MooncakeSpec
from octavo.stores.objects import ObjectsSpec
from octavo.stores.redis import RedisSpec

_SPECS: dict[str, type[RemoteSpec]] = {
    "Mooncake": MooncakeSpec,
    "object stores": ObjectsSpec,
    "Redis (a bucket has lifecycle rules)": RedisSpec,
}
"""By the words that say whose a setting is."""
_SCHEMES: dict[str, type[RemoteSpec]] = {
    **dict.fromkeys(("redis", "rediss", "unix"), RedisSpec),
    "mooncake": MooncakeSpec,
}
"""All others are those of object stores."""

if TYPE_CHECKING:
    _AnyRemoteConfig = RemoteConfig
else:
    _AnyRemoteConfig = joined_settings(RemoteConfig, [spec.config_class for spec in _SPECS.values()])


class SharedConfig(_AnyRemoteConfig, frozen=True, kw_only=True):
    """An object store, Redis or Mooncake, with the settings of each."""

    url: Annotated[
        str,
        Meta(
            pattern=r"^((s3|gs|az)://[A-Za-z0-9][A-Za-z0-9._-]{2,}(/|$)|file:///|rediss?://[^/\s]|unix:///|"
            r"mooncake://[^/\s:]+:\d{1,5}$)",
            description="s3://bucket/prefix, gs://, az://, file:///folder, redis://host:port/db or "
            "mooncake://host:port (the name of a bucket or container has at least 3 characters)",
        ),
    ]
    """A store that engines share: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///folder,
    redis://host:port/db, or mooncake://host:port of Mooncake's master."""

    @property
    def spec(self) -> RemoteSpec:
        """What builds its tier. InputError for a setting of another kind."""
        spec = _SCHEMES.get(self.url.partition(":")[0], ObjectsSpec)
        names = spec.config_class.__struct_fields__
        for owner, other in _SPECS.items():
            foreign = [field for field in fields(other.config_class) if field.name not in names]
            given = [field.encode_name for field in foreign if getattr(self, field.name) != field.default]
            if given:
                is_for, them = ("is for", "it") if len(given) == 1 else ("are for", "them")
                raise InputError(f"shared: {' and '.join(given)} {is_for} {owner}: leave {them} out")
        try:
            return spec(spec.config_class(**{name: getattr(self, name) for name in names}))
        except InputError as error:
            raise InputError(f"shared: {error}") from None
