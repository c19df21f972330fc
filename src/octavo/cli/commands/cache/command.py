"""`octavo cache`: what a disk tier holds, without an engine, or beside one."""

import json as json_module
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from octavo.chunks import name_tenant
from octavo.cli.commands.cache.view import show_namespaces, show_statistics
from octavo.cli.exit_codes import FAILED
from octavo.cli.flags import CommandGroup, is_hex, naming, not_empty
from octavo.cli.output import confirm, write_output
from octavo.errors import InputError
from octavo.tiers.disk import (
    Cleared,
    DirectoryContent,
    Selection,
    clear_directory,
    count_selected,
    inspect_directory,
    verify_directory,
)
from octavo.units import counted, format_bytes, parse_seconds

app = CommandGroup()

_Directory = Annotated[Path, typer.Argument(help="The directory of a disk tier.", metavar="DIR")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command(name="ls")
def list_namespaces(directory: _Directory, *, json: _Json = False) -> None:
    """List the namespaces: chunks, bytes, age, and whose they are.

    A hit is a resume that used a chunk, also where the device or memory still had it.
    """
    _show(directory, show_namespaces, as_json=json)


@app.command()
def stat(directory: _Directory, *, json: _Json = False) -> None:
    """Show who holds the directory, and each group's chunks, bytes and hits.

    A hit is a resume that used a chunk, also where the device or memory still had it.
    """
    _show(directory, show_statistics, as_json=json)


@app.command()
def verify(directory: _Directory, *, json: _Json = False) -> None:
    """Read and check every record; exit with 1 if any is damaged."""
    found = verify_directory(directory)
    if json:
        write_output(json_module.dumps(asdict(found), indent=2) + "\n")
    else:
        for damage in found.damages:
            write_output(f"{directory / damage.segment}: offset {damage.offset}: {damage.problem}\n")
        notes = [f"{len(found.damages)} damaged"]
        if found.unfinished:
            notes.append(f"{found.unfinished} never finished")
        if found.unchecked:
            notes.append(f"{counted(found.unchecked, 'segment')} of a newer version left out")
        records, segments = counted(found.records, "record"), counted(found.segments, "segment")
        checked = f"{records}, {format_bytes(found.payload_bytes)} in {segments}"
        write_output(f"{checked}: {', '.join(notes)}\n")
    if found.damages:
        raise typer.Exit(FAILED)


@app.command()
def clear(
    directory: _Directory,
    *,
    namespace: Annotated[
        str, typer.Option(help="Only namespaces that begin with these hexadecimal digits.", callback=not_empty)
    ] = "",
    salt: Annotated[
        str | None, typer.Option(help="Only what was stored under this salt (a tenant's).", show_default="all")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(help="Only what is in segments begun so long ago: 7d.", show_default="all")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete what a disk tier has stored; refused while an engine holds the directory."""
    if not is_hex(namespace):
        raise InputError(f"--namespace: {namespace!r} must be hexadecimal digits, as `octavo cache ls` shows them")
    content = inspect_directory(directory)
    if content.holder is not None:
        raise InputError(f"{directory} is in use by {content.holder}: end it first")
    with naming("--older-than"):
        before_ns = None if older_than is None else time.time_ns() - int(parse_seconds(older_than) * 1e9)
    which = Selection(namespace_prefix=namespace, tenant=name_tenant(salt), before_ns=before_ns)
    selected = count_selected(directory, which)
    if not yes and selected != Cleared():
        chosen = [found for found in content.namespaces if found.namespace.startswith(namespace)]
        whose = f" of {len(chosen)} of {counted(len(content.namespaces), 'namespace')}" if chosen else ""
        what = f"{_records(selected)} ({format_bytes(selected.num_bytes)})"
        confirm(f"Delete {what}{whose} in {directory}?")
    cleared = clear_directory(directory, which)
    write_output(f"{_records(cleared)} deleted, {format_bytes(cleared.num_bytes)}\n")


def _records(cleared: Cleared) -> str:
    records = f" and {counted(cleared.records, 'record')} within others" if cleared.records else ""
    return f"{counted(cleared.segments, 'segment')}{records}"


def _show(directory: Path, show: Callable[[DirectoryContent], str], *, as_json: bool) -> None:
    content = inspect_directory(directory)
    if as_json:
        fields = asdict(content) | {"directory": str(content.directory)}
        write_output(json_module.dumps(fields, indent=2) + "\n")
    else:
        write_output(show(content))
