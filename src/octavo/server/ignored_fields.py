"""`IgnoredFields`: a request's fields that this server does not know are named to the client, and once in the log."""

import logging
from urllib.parse import quote

import msgspec

from octavo.server.requests import decode

_logger = logging.getLogger(__name__)

_BOOKKEEPING = frozenset({"metadata", "safety_identifier", "service_tier", "store", "user"})
"""OpenAI's fields that never change an answer: clients send them to every server, and none is missed."""
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL = b"null"
_MOST_TOLD = 16
_LONGEST_NAME = 64
_MOST_LOGGED = 64


class IgnoredFields:
    """The ignored fields of one server. At most 64 names are logged, each once; clients are told for each request."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def find(self, body: bytes | bytearray, request: msgspec.Struct) -> list[str]:
        """The fields of a body that its request has no place for, printable and short: at most 16. Null asks for
        nothing, so it is not told."""
        known = _BOOKKEEPING.union(request.__struct_encode_fields__)
        found = (name for name, value in decode(body, _FIELDS).items() if name not in known and bytes(value) != _NULL)
        return [quote(name)[:_LONGEST_NAME] for name, _ in zip(found, range(_MOST_TOLD), strict=False)]

    def log(self, names: list[str]) -> None:
        """Names that were not logged before."""
        new = [name for name in names if name not in self._logged][: _MOST_LOGGED - len(self._logged)]
        if not new:
            return
        self._logged.update(new)
        _logger.warning("clients send fields that are ignored: %s", ", ".join(new))
        if len(self._logged) == _MOST_LOGGED:
            _logger.warning("more ignored fields are told to the clients only")
