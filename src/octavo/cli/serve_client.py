"""A client of any server that speaks OpenAI's API: its address, its models, and the events of its streams."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import msgspec

from octavo.errors import MALFORMED, InputError, why_not_read

_CONNECT_TIMEOUT_S = 10.0
_READ_TIMEOUT_S = 600.0
"""The longest wait between two pieces of an answer: a long prompt's first token takes a while."""
_MOST_ERROR_CHARS = 300
_DATA = "data:"
_DONE = "[DONE]"

TIMEOUT = httpx.Timeout(_READ_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)


def base_url_of(url: str) -> str:
    """The address before `/v1/...`, from one with or without `/v1`."""
    text = url if "://" in url else f"http://{url}"
    try:
        parsed = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise InputError(f"{url!r} is not an address: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InputError(f"{url!r} is not an address; write it like http://127.0.0.1:8000")
    return text.rstrip("/").removesuffix("/v1")


def headers_of(api_key: str | None) -> dict[str, str]:
    """The header with the key, if there is one. Raises InputError for a key that no server accepts."""
    if api_key is None:
        return {}
    if not (api_key and api_key.isascii() and api_key.isprintable()):
        raise InputError("the API key must be printable ASCII, and not empty: give --api-key the server's own")
    return {"Authorization": f"Bearer {api_key}"}


def ask(client: httpx.Client, method: str, path: str) -> httpx.Response:
    """The server's answer. Raises InputError if there is none, or it is a refusal."""
    server = str(client.base_url).rstrip("/")
    try:
        response = client.request(method, path)
    except httpx.HTTPError as error:
        raise InputError(f"{server} does not answer: {describe(error)}") from None
    if response.is_error:
        raise InputError(f"{server} answers {complaint_of(response.status_code, response.content)}")
    return response


def find_model(client: httpx.Client) -> str:
    """The first model that is served."""
    response = ask(client, "GET", "/v1/models")
    try:
        name = response.json()["data"][0]["id"]
    except (*MALFORMED, LookupError, TypeError):
        name = None
    if not isinstance(name, str):
        raise InputError(f"{client.base_url} names no model; name one with --model")
    return name


def describe(error: Exception) -> str:
    """The error in words, even if it has none itself."""
    return str(error) or type(error).__name__


def complaint_of(status: int, body: bytes) -> str:
    """The reason in a server's refusal."""
    try:
        message = msgspec.json.decode(body)["error"]["message"]
    except (*MALFORMED, LookupError, TypeError):
        message = body.decode(errors="replace")
    return f"{status}: {str(message)[:_MOST_ERROR_CHARS]}"


def parse_event(line: str) -> dict[str, Any] | None:
    """The message in a stream's line; None for lines without one, and for the last."""
    if not line.startswith(_DATA):
        return None
    data = line[len(_DATA) :].strip()
    if data == _DONE:
        return None
    try:
        message = msgspec.json.decode(data)
    except MALFORMED as error:
        raise InputError(f"the server sent an event that {why_not_read(error)}") from None
    if not isinstance(message, dict):
        raise InputError("the server sent an event that is not an object")
    if "error" in message:
        raise InputError(f"the server gave up: {_message_of(message['error'])}")
    return message


def events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The messages of a stream."""
    for line in response.iter_lines():
        if (message := parse_event(line)) is not None:
            yield message


async def events_async(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The same, asynchronously."""
    async for line in response.aiter_lines():
        if (message := parse_event(line)) is not None:
            yield message


def _message_of(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return str(message)[:_MOST_ERROR_CHARS]
