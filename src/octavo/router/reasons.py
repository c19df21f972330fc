"""Why a request to an engine failed: in words, whether the connection was refused, and whether it is the router that
could open none."""

import errno
from collections.abc import Iterator
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
_UNKNOWN_AUTHORITY = ("self-signed certificate", "unable to get local issuer certificate")

_LACKS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def reason_of(error: Exception) -> str:
    if lack := find_lack(error):
        return lack
    if isinstance(error, httpx.HTTPStatusError):
        return _reason_of_answer(error.response)
    reason = str(error) or _WORDS.get(type(error), type(error).__name__)
    if any(sign in reason for sign in _UNKNOWN_AUTHORITY):
        return f"{reason}: name the file with its authority's certificate in SSL_CERT_FILE"
    return reason


def was_refused(error: Exception) -> bool:
    """Whether nothing takes connections there: the machine answers, and the engine has ended, or is about to."""
    return any(isinstance(cause, ConnectionRefusedError) for cause in _causes(error))


def find_lack(error: Exception) -> str:
    """What this process lacks for a connection; empty if it lacks nothing. It tells nothing of the engine."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in _LACKS:
            return f"the router can open no connection ({cause.strerror}): raise the limit of open files (ulimit -n)"
    return ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, its cause, and so on."""
    if isinstance(error, BaseExceptionGroup):  # one error for each address of a name
        for one in error.exceptions:
            yield from _causes(one)
    elif error is not None:
        yield error
        yield from _causes(error.__cause__ or error.__context__)


def _reason_of_answer(answer: httpx.Response) -> str:
    told = f"it answers {answer.status_code} {answer.reason_phrase}".rstrip()
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        return f"{told}: give the engines' key with --engine-api-key"
    return told
