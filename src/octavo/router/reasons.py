"""`reason_of`: why a request to an engine failed, in words."""

import httpx

_BROKE = "the connection broke"
_WORDS: dict[type[Exception], str] = {
    httpx.ConnectTimeout: "no connection in time",
    httpx.ReadError: _BROKE,
    httpx.WriteError: _BROKE,
    httpx.CloseError: _BROKE,
}
"""For errors that often have no message."""


def reason_of(error: Exception) -> str:
    return str(error) or _WORDS.get(type(error), type(error).__name__)
