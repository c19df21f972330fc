"""`as_response`: a refusal as it is answered. `REFUSALS`: for what a route raised, or where none takes the request."""

from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import OctavoError
from octavo.http.errors import ApiError, as_api_error


async def _refuse(_: Request, error: Exception) -> Response:
    return as_response(as_api_error(error))


async def _refuse_http(request: Request, error: Exception) -> Response:
    """There is no such path, or it does not take this method."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    message = f"{request.method} {request.url.path}: {status.phrase.lower()}"
    return as_response(ApiError(status, message, headers=error.headers))


def as_response(error: ApiError) -> Response:
    """The answer for a client."""
    return Response(error.body, error.status, error.headers, "application/json")


def as_json(message: object) -> Response:
    """The answer of a plain route."""
    return Response(msgspec.json.encode(message), media_type="application/json")


REFUSALS = {HTTPException: _refuse_http, OctavoError: _refuse, Exception: _refuse}
"""Exception -> handler, for an application."""
