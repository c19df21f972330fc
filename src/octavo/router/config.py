"""`RouterConfig`: how a router is reached, and how it reaches its engines."""

from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Meta, field

from octavo.http import HttpConfig
from octavo.settings import Count, Secret


class RouterConfig(HttpConfig, frozen=True, kw_only=True):
    """A router in front of engines that serve the same model."""

    files_per_connection: ClassVar[int] = 2
    """A client's, and the engine's that answers it."""

    engines: tuple[str, ...] = field(name="engine", default=())
    """An engine's URL; once for each engine. Options may follow it, a comma before each: name=NAME,
    events=tcp://HOST:PORT, replay=tcp://HOST:PORT, keys=FOLDER, hash=ALGORITHM, seed=SEED, ranks=NUMBER, store=NAME.
    dns://NAME:PORT is one engine at each address of the name."""
    tenants: Path | None = None
    """The file of tenants' keys that the engines have: the router lets these clients in, hands their keys on, and knows
    what each tenant has cached."""
    engines_file: Path | None = None
    """A YAML file with the key `engines`, a list of such engines; it is read again when it changes."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8080
    """The port to listen on; 0 takes a free one."""
    operator_api_key: Secret | None = None
    """The key that drains engines and sees the fleet and the metrics. By default it is `api_key`; without either, only
    this machine may drain."""
    engine_api_key: Secret | None = None
    """The key that the engines ask for; without it the clients' own keys are handed on."""
    most_open_per_engine: Count = 1024
    """Requests at once for one engine; while all engines have as many, more are refused."""
    most_open: Count = 4096
    """Requests at once; more are refused."""
