"""`ServerConfig`: how a server is reached, and what it bears."""

from typing import Annotated

from msgspec import Meta

from octavo.errors import InputError
from octavo.settings import Count, Seconds, Settings


class ServerConfig(Settings, frozen=True, kw_only=True):
    """Where a server listens, who may use it, and the bounds of what it holds for its clients."""

    model_name: Annotated[str, Meta(min_length=1, description="a name")]
    """As requests and answers name the model."""
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    """0 takes a free one."""
    api_key: str | None = None
    """The key that clients must show; None lets in everybody who reaches the address."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names of this server in `Host`, for a server without an API key."""
    max_body_bytes: Count = 32 << 20
    """Of one request's body."""
    max_buffered_bytes: Count = 512 << 20
    """Of all bodies that are being read or served; more are refused until others have ended."""
    body_timeout_s: Seconds = 60.0
    """For a body to arrive."""
    send_timeout_s: Seconds = 120.0
    """For a client to take a piece of its answer; one that does not is given up."""
    shutdown_timeout_s: Annotated[float, Meta(ge=0, le=1e9, description="a number of seconds, 0 or more")] = 30.0
    """How long open requests may go on when the server is asked to end."""
    most_connections: Count = 8192
    keep_alive_s: Count = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.api_key is not None and not (self.api_key and self.api_key.isascii() and self.api_key.isprintable()):
            raise InputError("the API key must be printable ASCII, and not empty")
