"""`reason_of`: why a request to an engine failed, in words."""

from http import HTTPStatus

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
    if isinstance(error, httpx.HTTPStatusError):
        return _reason_of_answer(error.response)
    return str(error) or _WORDS.get(type(error), type(error).__name__)


def _reason_of_answer(answer: httpx.Response) -> str:
    told = f"it answers {answer.status_code} {answer.reason_phrase}".rstrip()
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        return f"{told}: give the engines' key with --engine-api-key"
    return told
