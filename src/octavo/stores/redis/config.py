"""`RedisConfig`: everything that a person can configure of a Redis tier.

{"url": "redis://host:6379/0", "keep_seconds": 86400}
"""

from typing import Annotated

from msgspec import Meta, field

from octavo.settings import Seconds
from octavo.stores import RemoteConfig


class RedisConfig(RemoteConfig, frozen=True, kw_only=True):
    """Where the server is, and what bounds the traffic."""

    what = "Redis tier"

    url: Annotated[
        str,
        Meta(
            pattern=r"^(rediss?://[^/\s]+(/[0-9]*/?)?(\?\S*)?$|unix:///)",
            description="redis://host:port/db, rediss:// or unix:///socket?db=0",
        ),
    ]
    """A server that engines share: redis://host:port/db, rediss://host:port/db with TLS, or unix:///path?db=0. Without
    a password in it, OCTAVO_REDIS_PASSWORD may hold one."""
    keep_s: Seconds = field(name="keep_seconds", default=7 * 86400.0)
    """How long Redis keeps a chunk after it was stored or loaded. A bucket has lifecycle rules instead."""
