"""`PickerConfig`: how an endpoint picker is reached, and how it reaches its engines."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from octavo.errors import InputError
from octavo.http import HttpConfig, check_api_keys
from octavo.settings import Count, Host, SecondsFromZero, Secret, Settings


class PickerConfig(Settings, frozen=True, kw_only=True):
    """A picker for engines that serve the same model."""

    what = "endpoint picker"

    engines: tuple[str, ...] = field(name="engine", default=())
    """An engine's URL; once for each engine. Options may follow it, a comma before each: name=NAME,
    events=tcp://HOST:PORT, replay=tcp://HOST:PORT, keys=FOLDER, hash=ALGORITHM, seed=SEED, ranks=NUMBER, store=NAME.
    dns://NAME:PORT is one engine at each address of the name."""
    host: Host = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 9002
    """The port to listen on; 0 takes a free one."""
    tls_certificate: Path | None = None
    """A file with the certificate to show; without it there is no TLS. When it has changed, new connections get the new
    one."""
    tls_key: Path | None = None
    """A file with the certificate's key."""
    engine_api_key: Secret | None = None
    """The key that the engines ask for, which requests get here; without it the clients' own keys are handed on. With
    tenants it is for the picker's own questions alone."""
    tenants: Path | None = None
    """The file of tenants' keys that the engines have: the picker knows what each tenant has cached, and the engines
    check the keys."""
    status_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    """A port for HTTP: /metrics, /fleet and the page; 0 takes a free one. By default there is none."""
    operator_api_key: Secret | None = None
    """The key that reads what the status port shows, and drains engines; without it only this machine may drain."""
    allowed_hosts: tuple[str, ...] = field(name="allowed_host", default=())
    """Further names of this picker, for HTTP without a key."""
    fallbacks: Annotated[int, Meta(ge=0, le=16)] = 1
    """Further engines that the Gateway is told, should the first not answer. 0 for a Gateway that takes one only."""
    most_open_per_engine: Count = 1024
    """Requests at once for one engine; while all engines have as many, more are refused."""
    most_open: Count = 4096
    """Requests at once; more are refused."""
    max_body_bytes: Count = 32 << 20
    """The most bytes of one request's body."""
    max_buffered_bytes: Count = 512 << 20
    """The most bytes of all bodies that are being read or served; more are refused."""
    shutdown_timeout_s: SecondsFromZero = 30.0
    """How long open requests may go on when the picker is asked to end."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important lines that are logged."""
    log_json: bool = False
    """Log each line as a JSON object."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_api_keys(self)
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise InputError("TLS needs a certificate and its key: give both, or neither")

    @property
    def status(self) -> HttpConfig | None:
        """How the status is reached, if it is."""
        if self.status_port is None:
            return None
        key, hosts = self.operator_api_key, self.allowed_hosts
        return HttpConfig(host=self.host, port=self.status_port, api_key=key, allowed_hosts=hosts)
