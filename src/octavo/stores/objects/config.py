"""`ObjectsConfig`: everything that a person can configure of an object store tier.

{"url": "s3://bucket/prefix", "endpoint": "https://store.local", "path_style": true}
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta
from msgspec.structs import fields

from octavo.errors import InputError
from octavo.stores import RemoteConfig

_ONLY_FOR: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"endpoint": ("s3", "az"), "region": ("s3",), "path_style": ("s3",), "ca_file": ("s3", "gs", "az")}
)
"""By setting: the kinds of addresses that it means something to. A folder has none of them."""


class ObjectsConfig(RemoteConfig, frozen=True, kw_only=True):
    """Where the objects are, and what bounds the traffic."""

    what = "object store tier"

    url: Annotated[
        str,
        Meta(
            pattern=r"^((s3|gs|az)://[A-Za-z0-9][A-Za-z0-9._-]{2,}(/|$)|file:///)",
            description="s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder "
            "(the name of a bucket or container has at least 3 characters)",
        ),
    ]
    """A store that engines share: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder."""
    endpoint: Annotated[str, Meta(pattern=r"^https?://[^/\s]+", description="https://host:port")] | None = None
    """The store's own address, for one that is not the cloud's: https://store.local:9000."""
    region: Annotated[str, Meta(min_length=1, description="a region such as eu-central-1")] | None = None
    """The region of the bucket."""
    path_style: bool = True
    """With an endpoint: whether the bucket stands in the path of a request, rather than in the name of the host."""

    def __post_init__(self) -> None:
        super().__post_init__()
        scheme, kinds = self.url.partition(":")[0], fields(self)
        if scheme != "file" and not {"?", "#"}.isdisjoint(self.url):  # obstore would leave aside what follows
            raise InputError(
                f"url {self.shown_url}: nothing may follow it after ? or #: endpoint and region are settings"
            )
        for name, schemes in _ONLY_FOR.items():
            (kind,) = (kind for kind in kinds if kind.name == name)
            if scheme not in schemes and getattr(self, name) != kind.default:
                these = ", ".join(f"{one}://" for one in schemes)
                raise InputError(f"{kind.encode_name} is for {these}: leave it out")

    @property
    def place(self) -> str:
        return super().place if self.endpoint is None else f"{super().place} at {self._place_of(self.endpoint)}"
