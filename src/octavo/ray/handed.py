"""What goes from the ingress to a replica and back: `HandedRequest`, then a `Head`, then the pieces of the body."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from octavo.server import Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedRequest:
    """A client's request, as a replica gets it."""

    method: str
    path: str
    headers: Headers
    body: bytes = b""

    @property
    def scope(self) -> dict[str, Any]:
        """For the replica's application."""
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
    """How an answer begins."""

    status: int
    headers: Headers
    replica: str
    """Whose it is."""


AnswerPart: TypeAlias = Head | bytes
