"""`ApiError`: an answer that is no success, in the shape of OpenAI's API; and which one an exception becomes.

{"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
"""

import logging
from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from octavo.errors import EngineBusyError, EngineClosedError, InputError, OctavoError, RequestTooLargeError

_logger = logging.getLogger(__name__)

_RETRY_BUSY = {"retry-after": "1"}
_RETRY_CLOSED = {"retry-after": "10"}


class ApiError(OctavoError):
    """An answer that is no success."""

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers or {}

    @property
    def body(self) -> bytes:
        """The body, as JSON."""
        about = {"message": self.message, "type": _type_of(self.status), "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": about})


def bad_request(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """The client's mistake."""
    return ApiError(HTTPStatus.BAD_REQUEST, message, param=param, code=code)


def not_found(message: str, *, param: str | None = None, code: str = "not_found") -> ApiError:
    """There is no such thing here."""
    return ApiError(HTTPStatus.NOT_FOUND, message, param=param, code=code)


def overloaded(message: str) -> ApiError:
    """Nobody's mistake: the same request may be welcome in a moment."""
    return ApiError(HTTPStatus.TOO_MANY_REQUESTS, message, code="queue_full", headers=_RETRY_BUSY)


def shutting_down(message: str = "the server is shutting down") -> ApiError:
    """The server takes no more requests."""
    return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, message, code="unavailable", headers=_RETRY_CLOSED)


def not_durable() -> ApiError:
    """A reset that holds in this process alone."""
    return ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "nothing that was cached is used any more, but the disk has not confirmed it yet: a server that starts after a "
        "crash may find it again; send the request again",
        code="reset_not_durable",
        headers=_RETRY_BUSY,
    )


def as_api_error(error: Exception) -> ApiError:
    """The answer to an exception. An exception that was not raised on purpose is logged, and not explained to the
    client."""
    match error:
        case ApiError():
            return error
        case RequestTooLargeError():
            return bad_request(str(error), param="prompt", code="context_length_exceeded")
        case InputError():
            return bad_request(str(error), param=error.param)
        case EngineBusyError():
            return overloaded(str(error))
        case EngineClosedError():
            return shutting_down(str(error))
        case _:
            _logger.error("a request failed", exc_info=error)
            return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed; its log says why")


def _type_of(status: HTTPStatus) -> str:
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "server_error"
    return "rate_limit_error" if status is HTTPStatus.TOO_MANY_REQUESTS else "invalid_request_error"
