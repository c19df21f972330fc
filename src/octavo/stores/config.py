"""`RemoteConfig`: what a person can configure of every store on a network; `RemoteLimits`: what bounds its traffic."""

import platform
from dataclasses import dataclass, fields
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from msgspec import field

from octavo.settings import Seconds, Settings, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLimits:
    """What bounds the traffic with a store."""

    queue_bytes: int = 256 << 20
    """The most bytes of stores under way, and of loads under way. A job that is alone may be larger."""
    queue_jobs: int = 64
    """The most stores under way, and the most loads."""
    find_s: float = 2.0
    load_s: float = 5.0
    store_s: float = 30.0
    """How long one call may take."""
    remember_s: float = 10.0
    """How long an answer holds: what others store meanwhile is found after that."""
    close_s: float = 5.0
    """How long closing waits for what is being stored."""


_LIMITS = RemoteLimits()
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class RemoteConfig(Settings, frozen=True, kw_only=True):
    """Where a store is, and what bounds the traffic. A kind of store narrows `url`, and adds what only it has."""

    url: str
    """A store that engines share."""
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
    def shown_url(self) -> str:
        """Without a password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def place(self) -> str:
        """Where the store is, in the same words on each machine that shares it, and without a password. What only one
        machine can reach is in the words of that machine; a folder counts as shared."""
        return self._place_of(self.url)

    def _place_of(self, url: str) -> str:
        parts = urlsplit(url)
        database = "".join(f"?db={number}" for number in parse_qs(parts.query).get("db", []))
        is_here = parts.scheme == "unix" or parts.hostname in _LOOPBACK
        where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}{parts.path.rstrip('/')}{database}"
        return f"{where} on {platform.node()}" if is_here else where

    @property
    def limits(self) -> RemoteLimits:
        names = {limit.name for limit in fields(RemoteLimits)} & set(self.__struct_fields__)
        return RemoteLimits(**{name: getattr(self, name) for name in names})
