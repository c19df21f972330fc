"""A connection to a server that speaks OpenAI's API: its address, its key, and its models."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec

from octavo.cli.client.answers import read_body
from octavo.errors import MALFORMED, InputError

_CONNECT_TIMEOUT_S = 10.0
_READ_TIMEOUT_S = 600.0
"""The longest wait between two pieces of an answer: a long prompt's first token takes a while."""

TIMEOUT = httpx.Timeout(_READ_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)


def base_url_of(url: str) -> str:
    """The address before `/v1/...`, from one with or without `/v1`."""
    text = url if "://" in url else f"http://{url}"
    try:
        parsed = httpx.URL(text)
        parsed.raw_host.decode("ascii").encode("idna")  # as the look-up of the name does it
    except httpx.InvalidURL as error:
        raise InputError(f"{url!r} is not an address: {error}") from None
    except UnicodeError:
        raise InputError(f"{url!r} is not an address: a part of its host's name is empty or too long") from None
    has_port = parsed.port is None or 0 < parsed.port < 1 << 16  # a system may take the rest of a higher one
    if parsed.scheme not in ("http", "https") or not parsed.host or not has_port:
        raise InputError(f"{url!r} is not an address; write it like http://127.0.0.1:8000")
    return text.rstrip("/").removesuffix("/v1")


def headers_of(api_key: str | None) -> dict[str, str]:
    """The header with the key, if there is one. Raises InputError for a key that no server accepts."""
    if api_key is None:
        return {}
    if not (api_key and api_key.isascii() and api_key.isprintable()):
        raise InputError("the API key must be printable ASCII, and not empty: give --api-key the server's own")
    return {"Authorization": f"Bearer {api_key}"}


def open_client(base_url: str, headers: Mapping[str, str]) -> httpx.Client:
    with _opening():
        return httpx.Client(base_url=base_url, headers=headers, timeout=TIMEOUT)


def open_async_client(base_url: str, headers: Mapping[str, str], **options: Any) -> httpx.AsyncClient:
    with _opening():
        return httpx.AsyncClient(base_url=base_url, headers=headers, timeout=TIMEOUT, **options)


@contextmanager
def _opening() -> Iterator[None]:
    """Raises InputError for variables of the environment that name what no client can use."""
    try:
        yield
    except ImportError:
        raise InputError(
            "a SOCKS proxy is set (ALL_PROXY, HTTP_PROXY or HTTPS_PROXY): pip install 'httpx[socks]', or unset it"
        ) from None
    except OSError as error:
        raise InputError(f"no certificates in SSL_CERT_FILE or SSL_CERT_DIR: {text_of_error(error)}") from None
    except (httpx.InvalidURL, ValueError) as error:
        raise InputError(f"the proxy in ALL_PROXY, HTTP_PROXY or HTTPS_PROXY is none: {text_of_error(error)}") from None


def ask(client: httpx.Client, method: str, path: str) -> bytes:
    """The body of the server's answer. Raises InputError if there is none, or it is a refusal."""
    server = str(client.base_url).rstrip("/")
    try:
        with client.stream(method, path) as response:
            return read_body(response)
    except httpx.ConnectError as error:
        remedy = "start the server first, or give the address of the one that runs"
        raise InputError(f"{server} does not answer: {text_of_error(error)}; {remedy}") from None
    except httpx.HTTPError as error:
        raise InputError(f"{server} does not answer: {text_of_error(error)}") from None
    except InputError as error:
        raise InputError(f"{server} answers {error}") from None


def first_model_of(client: httpx.Client) -> str:
    """The first model that is served. Raises InputError if the server names none."""
    body = ask(client, "GET", "/v1/models")
    try:
        name = msgspec.json.decode(body)["data"][0]["id"]
    except (*MALFORMED, LookupError, TypeError):
        name = None
    if not isinstance(name, str):
        raise InputError(f"{client.base_url} names no model; name one with --model")
    return name


def text_of_error(error: Exception) -> str:
    """The error in words, even if it has none itself."""
    return str(error) or type(error).__name__
