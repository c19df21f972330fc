"""`ServerConfig`: how a server is reached, and what it bears."""

from dataclasses import dataclass

from octavo.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where a server listens, who may use it, and the bounds of what it holds for its clients."""

    model_name: str
    """As requests and answers name the model."""
    host: str = "127.0.0.1"
    port: int = 8000
    """0 takes a free one."""
    api_key: str | None = None
    """What clients have to show; None lets everybody in."""
    max_body_bytes: int = 32 << 20
    """Of one request's body."""
    max_buffered_bytes: int = 512 << 20
    """Of all bodies that are being read or served; more are refused until others have ended."""
    body_timeout_s: float = 60.0
    """For a body to arrive."""
    send_timeout_s: float = 120.0
    """For a client to take a piece of its answer; one that does not is given up."""
    shutdown_timeout_s: float = 30.0
    """How long open requests may go on when the server is asked to end."""
    most_connections: int = 8192
    keep_alive_s: int = 30

    def __post_init__(self) -> None:
        if not self.model_name:
            raise InputError("a served model needs a name")
        if not 0 <= self.port <= 65535:
            raise InputError(f"port must be from 0 to 65535, not {self.port}")
        if self.api_key is not None and not (self.api_key and self.api_key.isascii() and self.api_key.isprintable()):
            raise InputError("the API key must be printable ASCII, and not empty")
        for name in (
            "max_body_bytes", "max_buffered_bytes", "body_timeout_s", "send_timeout_s", "most_connections",
            "keep_alive_s",
        ):  # fmt: skip
            if getattr(self, name) <= 0:
                raise InputError(f"{name} must be more than 0, not {getattr(self, name)}")
        if not 0 <= self.shutdown_timeout_s < float("inf"):
            raise InputError(
                f"shutdown_timeout_s must be a number of seconds, 0 or more, not {self.shutdown_timeout_s}"
            )
