"""`RedisConfig`: everything that a person can configure of a Redis tier.

{"url": "redis://host:6379/0", "keep": 86400}
"""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, field

from octavo.settings import Seconds, Settings, Size
from octavo.stores.tier import RemoteLimits

_LIMITS = RemoteLimits()


class RedisConfig(Settings, frozen=True, kw_only=True):
    """Where the server is, and what bounds the traffic."""

    what = "Redis tier"

    url: Annotated[
        str,
        Meta(
            pattern=r"^(rediss?://[^/\s]|unix:///)",
            description="redis://host:port/db, rediss:// or unix:///socket?db=0",
        ),
    ]
    """A server that engines share: redis://host:port/db, rediss://host:port/db with TLS, or unix:///path?db=0. Without
    a password in it, OCTAVO_REDIS_PASSWORD may hold one."""
    ca_file: Path | None = None
    """Certificates of the authority that has signed the server's own, in PEM."""
    key_file: Path | None = None
    """A file with 32 bytes in hex or base64: what is stored is encrypted with it. Without it, OCTAVO_STORE_KEY may hold
    the key itself."""
    keep_s: Seconds = field(name="keep_seconds", default=7 * 86400.0)
    """How long the server keeps a chunk after it was stored or loaded."""
    queue_bytes: Size = field(name="queue_size", default=_LIMITS.queue_bytes)
    """The most bytes of all stores in flight, and of all loads in flight."""
    find_s: Seconds = field(name="find_seconds", default=_LIMITS.find_s)
    """How long the server may take to say what it has of a prompt."""
    load_s: Seconds = field(name="load_seconds", default=_LIMITS.load_s)
    """How long one load may take."""
    store_s: Seconds = field(name="store_seconds", default=_LIMITS.store_s)
    """How long one store may take."""
    remember_s: Seconds = field(name="remember_seconds", default=_LIMITS.remember_s)
    """How long an answer of the server holds. What other engines store meanwhile is found after that."""

    @property
    def shown_url(self) -> str:
        """Without a password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def limits(self) -> RemoteLimits:
        return RemoteLimits(
            queue_bytes=self.queue_bytes,
            find_s=self.find_s,
            load_s=self.load_s,
            store_s=self.store_s,
            remember_s=self.remember_s,
        )
