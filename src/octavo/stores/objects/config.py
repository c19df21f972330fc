"""`ObjectsConfig`: everything that a person can configure of an object store tier.

{"url": "s3://bucket/prefix", "endpoint": "https://store.local", "path_style": true}
"""

from typing import Annotated

from msgspec import Meta

from octavo.stores import RemoteConfig


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
    region: str | None = None
    """The region of the bucket."""
    path_style: bool = True
    """With an endpoint: whether the bucket stands in the path of a request, rather than in the name of the host."""

    @property
    def place(self) -> str:
        return super().place if self.endpoint is None else f"{super().place} at {self._place_of(self.endpoint)}"
