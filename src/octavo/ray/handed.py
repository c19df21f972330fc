"""The messages between ingress and replica: `HandedRequest`, and back a `Head` and then the pieces of the body."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from octavo.http import Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedRequest:
    """A client's request as a replica gets it."""

    method: str
    path: str
    headers: Headers
    body: bytes = b""

    @property
    def scope(self) -> dict[str, Any]:
        """The request as ASGI's scope, for the replica's application."""
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": self.method,
            "path": self.path,
            "raw_path": self.path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": self.headers,
            "client": None,
            "server": None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The beginning of an answer."""

    status: int
    headers: Headers
    replica: str
    """The replica that answers."""


AnswerPart: TypeAlias = Head | bytes
