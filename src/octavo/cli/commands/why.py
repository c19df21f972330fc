"""`octavo why`: why a request resumed where it did, and not later."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TextIO

import typer

from octavo.cli.flags import SERVER_URL, ApiKey
from octavo.cli.output import printable, write_output
from octavo.errors import MALFORMED, InputError

_LONGEST_LINE_CHARS = 16 << 20
"""Of a log. A device such as /dev/zero is one line without end."""
_NO_RECORDS = (
    "an engine of Octavo keeps these records: behind a router, ask the one that the answer's x-octavo-engine names; "
    "of vLLM, give its log (--log)"
)
"""Where the server does not know the path, as a router or vLLM."""


def why(
    request: Annotated[str, typer.Argument(help="The id that the answer carries: chatcmpl-4f1d...")],
    *,
    url: Annotated[str, typer.Option(help="Where the server is.")] = SERVER_URL,
    api_key: ApiKey = None,
    log: Annotated[
        Path | None,
        typer.Option(help='For vLLM: its log, written with "why": true in the plug-in\'s configuration; - is stdin.'),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Say why a request resumed where it did, and what that cost."""
    if log is not None:
        _tell_from_log(log, request, as_json=json)
        return
    from urllib.parse import quote

    import msgspec

    from octavo.cli.client import ask, base_url_of, headers_of, open_client

    with open_client(base_url_of(url), headers_of(api_key)) as client:
        try:
            body = ask(client, "GET", f"/why/{quote(request, safe='')}")
        except InputError as error:
            if "not found" not in str(error).casefold():
                raise
            raise InputError(f"{error}; {_NO_RECORDS}") from None
    if json:
        write_output(printable(body.decode(errors="replace")) + "\n")
        return
    try:
        story = msgspec.json.decode(body)["story"]
    except (*MALFORMED, LookupError, TypeError):
        story = None
    if not isinstance(story, list):
        raise InputError(f"{base_url_of(url)} does not say why: is it an Octavo server?")
    write_output("".join(f"{printable(str(line))}\n" for line in story))


def _tell_from_log(log: Path, request: str, *, as_json: bool) -> None:
    import msgspec

    from octavo.why import find_report, tell_misses

    try:
        if str(log) == "-":
            report = find_report(_bounded(sys.stdin), request)
        else:
            with log.open(encoding="utf-8", errors="replace") as lines:
                report = find_report(_bounded(lines), request)
    except OSError as error:
        raise InputError(f"{log}: cannot be read: {error.strerror}") from None
    if report is None:
        raise InputError(
            f'{log}: has no line about {request!r}: vLLM writes one when a request ends, with "why": true in '
            "kv_connector_extra_config and log level INFO"
        )
    told = [msgspec.json.encode(report).decode()] if as_json else tell_misses(report)
    write_output("".join(f"{printable(line)}\n" for line in told))


def _bounded(log: TextIO) -> Iterator[str]:
    """The lines of a log."""
    while line := log.readline(_LONGEST_LINE_CHARS + 1):
        if len(line) > _LONGEST_LINE_CHARS:
            raise InputError(f"{log.name}: has more than {_LONGEST_LINE_CHARS:,} characters in one line: is it a log?")
        yield line
