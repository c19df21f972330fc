"""Why a request to an engine failed: in words, and whether the connection was refused."""

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


def was_refused(error: BaseException | None) -> bool:
    """Whether nothing takes connections there: the machine answers, and the engine has ended, or is about to."""
    if isinstance(error, BaseExceptionGroup):  # one error for each address of a name
        return any(map(was_refused, error.exceptions))
    if error is None or isinstance(error, ConnectionRefusedError):
        return error is not None
    return was_refused(error.__cause__ or error.__context__)


def _reason_of_answer(answer: httpx.Response) -> str:
    told = f"it answers {answer.status_code} {answer.reason_phrase}".rstrip()
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        return f"{told}: give the engines' key with --engine-api-key"
    return told
