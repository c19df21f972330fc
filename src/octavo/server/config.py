"""`ServerConfig`: the configuration of an engine's server."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, field

from octavo.errors import InputError
from octavo.http import HttpConfig
from octavo.settings import shown


class ServerConfig(HttpConfig, frozen=True, kw_only=True):
    """The server of one engine."""

    model_name: Annotated[str, Meta(min_length=1, description="a name")] = field(name="served_model_name")
    """As requests and answers name the model; by default as its folder is called."""
    tenants: Path | None = None
    """A file of more API keys, each with a tenant, which decides what its requests share, and a quota."""
    cors_origins: tuple[str, ...] = field(name="cors_origin", default=())
    """Sites whose pages may use this server, such as https://chat.example; pages of no other site may."""

    def __post_init__(self) -> None:
        HttpConfig.__post_init__(self)
        for origin in self.cors_origins:
            if not _is_origin(origin):
                raise InputError(
                    f"cors_origin: {shown(origin)} is not as browsers name a site; write it like https://chat.example "
                    "or http://localhost:3000, in small letters, without a path or a default port"
                )


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    is_plain = bool(host) and text.isascii() and text.isprintable() and "*" not in text and " " not in text
    is_default = (parts.scheme, port) in (("http", 80), ("https", 443))
    return is_plain and not is_default and text == f"{parts.scheme}://{host}" + ("" if port is None else f":{port}")
