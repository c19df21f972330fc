"""`SelectionConfig`: how a selection service is reached over HTTP."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from octavo.http import HttpConfig
from octavo.settings import Count, Seconds, Secret


class SelectionConfig(HttpConfig, frozen=True, kw_only=True):
    """A selection service."""

    port: Annotated[int, Meta(ge=0, le=65535)] = 8092
    """The port to listen on; 0 takes a free one."""
    api_key: Secret | None = None
    """The key that clients must show; without one, `octavo select` makes a key and says it at its start."""
    kv_events_keys: Path | None = None
    """A folder with the keys of the workers' events."""
    reservation_timeout_s: Seconds = 300.0
    """A reservation ends after this time without a word of it."""
    most_open: Count = 1024
    """Requests at once; more are refused."""
