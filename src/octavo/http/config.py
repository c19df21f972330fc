"""`HttpConfig`: how a server is reached, who may use it, and what it bears."""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, field, structs

from octavo.errors import InputError
from octavo.settings import Count, Host, Seconds, SecondsFromZero, Secret, Settings


class HttpConfig(Settings, frozen=True, kw_only=True):
    """Where a server listens, who may use it, and the bounds of what it holds for its clients."""

    files_per_connection: ClassVar[int] = 1
    """The files that a busy connection takes, with what answers it."""

    host: Host = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    """The port to listen on; 0 takes a free one."""
    api_key: Secret | None = None
    """The key that clients must show; without it the server lets in everybody who reaches the address."""
    allowed_hosts: tuple[str, ...] = field(name="allowed_host", default=())
    """Further names of this server, for clients without a key."""
    max_body_bytes: Count = 32 << 20
    """The most bytes of one request's body."""
    max_buffered_bytes: Count = 512 << 20
    """The most bytes of all bodies that are being read or served; more are refused until others have ended."""
    body_timeout_s: Seconds = 60.0
    """How long a body may take to arrive."""
    send_timeout_s: Seconds = 120.0
    """How long a client may take for a piece of its answer; then it is given up."""
    shutdown_timeout_s: SecondsFromZero = 30.0
    """How long open requests may go on when the server is asked to end."""
    most_connections: Count = 8192
    """Connections at once; the idlest one makes room for a new one."""
    keep_alive_s: Count = 30
    """How long an idle connection is kept."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important lines that are logged."""
    log_json: bool = False
    """Log each line as a JSON object."""
    access_log: bool = False
    """Log each request with its answer's status."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_api_keys(self)


def check_api_keys(config: Settings) -> None:
    """Raises InputError for an API key that no header carries."""
    for name, key in api_keys_of(config).items():
        if not (key and key.isascii() and key.isprintable()):
            raise InputError(f"{name}: the API key must be printable ASCII, and not empty")


def api_keys_of(config: Settings) -> dict[str, str]:
    """The keys that are set, by the names of their fields."""
    names = [one.name for one in structs.fields(config) if one.name.endswith("api_key")]
    return {name: key for name in names if (key := getattr(config, name)) is not None}
