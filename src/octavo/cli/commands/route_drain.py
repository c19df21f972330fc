"""`octavo route drain`: an engine of a router gets no new requests, or gets them again."""

from typing import Annotated

import msgspec
import typer

from octavo.cli.output import write_output
from octavo.errors import MALFORMED, InputError
from octavo.units import counted


class _Drained(msgspec.Struct):
    open_requests: int


def route_drain(
    engine: Annotated[str, typer.Argument(help="The engine's name in the fleet, such as 10.0.0.1:8000.")],
    *,
    url: Annotated[str, typer.Option(help="Where the router is.")] = "http://127.0.0.1:8080",
    api_key: Annotated[
        str | None, typer.Option(help="The operator's key of the router.", envvar="OCTAVO_API_KEY", show_default="none")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Let it get requests again.")] = False,
) -> None:
    """Keep new requests from an engine, so that it can be stopped when those that it has are answered."""
    from urllib.parse import quote

    from octavo.cli.client import ask, base_url_of, headers_of, open_client

    base_url = base_url_of(url)
    with open_client(base_url, headers_of(api_key)) as client:
        body = ask(client, "DELETE" if undo else "POST", f"/fleet/{quote(engine, safe='')}/drain")
    try:
        num_open = msgspec.json.decode(body, type=_Drained).open_requests
    except MALFORMED:
        raise InputError(f"{base_url} does not say what it drained: is it octavo route?") from None
    requests = counted(num_open, "request")
    write_output(f"{engine} gets {'requests again' if undo else 'no new requests'}, and has {requests} open\n")
