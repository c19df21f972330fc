"""`octavo store`: what a store that engines share holds, and how it is kept in bounds, beside running engines."""

import json as json_module
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.exit_codes import FAILED
from octavo.cli.flags import bytes_of, naming
from octavo.cli.output import write_output
from octavo.errors import InputError
from octavo.units import format_bytes, parse_seconds

if TYPE_CHECKING:
    from octavo.stores.objects import Share, StoredObject

app = typer.Typer(name="store", help="Look into a store that engines share, check it, collect what is old.")
_HEX_DIGITS = set("0123456789abcdef")

_Url = Annotated[str, typer.Argument(help="As engines have it: s3://bucket/prefix.", metavar="URL")]
_Endpoint = Annotated[str | None, typer.Option(help="The store's own address.", show_default="the cloud's")]
_Region = Annotated[str | None, typer.Option(help="The region of the bucket.", show_default="the environment's")]
_CaFile = Annotated[Path | None, typer.Option(help="Certificates of its authority, in PEM.", show_default="none")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would go, and delete nothing.")]


@app.callback()
def _store() -> None:
    """Look into a store that engines share, check it, collect what is old."""


@app.command(name="ls")
def list_namespaces(
    url: _Url, *, endpoint: _Endpoint = None, region: _Region = None, ca_file: _CaFile = None, json: _Json = False
) -> None:
    """List the namespaces of each family (a model) and epoch: objects, bytes, age."""
    from octavo.stores.objects import Inventory, list_objects  # what help needs not

    inventory = Inventory()
    with _opened(url, endpoint, region, ca_file) as store:
        for _found in list_objects(store, inventory):
            pass
    lines: list[dict[str, Any]] = [
        {"namespace": namespace, "family": family, "epoch": epoch, "is_former": inventory.is_former(family, epoch)}
        | asdict(share)
        for (family, epoch, namespace), share in sorted(inventory.namespaces.items())
    ]
    if json:
        write_output(json_module.dumps(lines, indent=2) + "\n")
        return
    for line in lines:
        former = ", left behind by a reset" if line["is_former"] else ""
        held = f"{line['objects']:,} objects, {format_bytes(line['num_bytes'])}, oldest {_age(line['oldest_s'])}"
        write_output(f"{line['namespace']}  {held}; model {line['family'][:16]}, epoch {line['epoch']}{former}\n")
    if not lines:
        write_output(f"{url}: no objects of Octavo here\n")


@app.command()
def stat(
    url: _Url, *, endpoint: _Endpoint = None, region: _Region = None, ca_file: _CaFile = None, json: _Json = False
) -> None:
    """Show all there is: objects, bytes, what resets left behind, tenants."""
    from octavo.stores.objects import Inventory, Share, list_objects  # see above

    inventory, total, former = Inventory(), Share(), Share()
    with _opened(url, endpoint, region, ca_file) as store:
        for found in list_objects(store, inventory):
            total.add(found)
    for (family, epoch, _), share in inventory.namespaces.items():
        if inventory.is_former(family, epoch):
            former.objects += share.objects
            former.num_bytes += share.num_bytes
    if json:
        tenants = {tenant: asdict(share) for tenant, share in sorted(inventory.tenants.items())}
        told = {"objects": total.objects, "num_bytes": total.num_bytes, "oldest_s": total.oldest_s, "tenants": tenants}
        told |= {"former_objects": former.objects, "former_bytes": former.num_bytes, "others": inventory.others}
        write_output(json_module.dumps(told, indent=2) + "\n")
        return
    age = f", oldest {_age(total.oldest_s)}" if total.objects else ""
    write_output(f"{_told(total)} in {len(inventory.namespaces):,} namespaces{age}\n")
    write_output(f"{_told(former)} left behind by resets: `octavo store gc` deletes them\n")
    write_output(f"{inventory.others:,} other objects\n")
    for tenant, share in sorted(inventory.tenants.items()):
        write_output(f"{'without a salt' if tenant == 'shared' else 'tenant ' + tenant}: {_told(share)}\n")


@app.command()
def verify(url: _Url, *, endpoint: _Endpoint = None, region: _Region = None, ca_file: _CaFile = None) -> None:
    """Read and check every object, without a key; exit with 1 if any is damaged."""
    from octavo.stores.objects import Share, find_damage, list_objects  # see above

    checked, num_damaged = Share(), 0
    with _opened(url, endpoint, region, ca_file) as store, _telling("checked") as tell:
        for found in list_objects(store):
            if problem := find_damage(store, found):
                num_damaged += 1
                write_output(f"{found.path}: {problem}\n")
            checked.add(found)
            tell(checked)
    write_output(f"{_told(checked)}: {num_damaged} damaged\n")
    if num_damaged:
        raise typer.Exit(FAILED)


@app.command()
def gc(
    url: _Url,
    *,
    size: Annotated[
        str | None, typer.Option(help="What may stay: 10TiB. The oldest objects go.", show_default="all")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(help="Delete what was stored so long ago: 7d.", show_default="none")
    ] = None,
    dry_run: _DryRun = False,
    endpoint: _Endpoint = None,
    region: _Region = None,
    ca_file: _CaFile = None,
) -> None:
    """Delete what resets left behind, what is too old, and the oldest of what is too much. Engines go on meanwhile."""
    from octavo.stores.objects import Inventory, Share, expire, list_objects  # see above

    most_bytes = None if size is None else bytes_of("--size", size)
    with naming("--older-than"):
        before_s = 0 if older_than is None else int(time.time() - parse_seconds(older_than))
    inventory, seen = Inventory(), Share()
    with _opened(url, endpoint, region, ca_file) as store:
        with _telling("looked at") as tell:
            for found in list_objects(store, inventory):
                seen.add(found)
                tell(seen)
        expiry = expire(inventory, most_bytes=most_bytes, before_s=before_s)
        _delete(store, filter(expiry.takes, list_objects(store)), is_dry=dry_run, of=seen)


@app.command()
def delete(
    url: _Url,
    *,
    salt: Annotated[
        str | None, typer.Option(help="Only what was stored under this salt (a tenant's).", show_default="all")
    ] = None,
    namespace: Annotated[str, typer.Option(help="Only namespaces that begin with these hexadecimal digits.")] = "",
    dry_run: _DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    endpoint: _Endpoint = None,
    region: _Region = None,
    ca_file: _CaFile = None,
) -> None:
    """Delete a tenant's objects, or a namespace's. What engines store meanwhile may stay: stop its requests first."""
    from octavo.chunks import name_tenant
    from octavo.stores.objects import list_objects  # see above

    if salt is None and not namespace:
        raise InputError("say which objects: --salt or --namespace; `octavo store gc` deletes by age and size")
    if not set(namespace) <= _HEX_DIGITS:
        raise InputError(f"--namespace: {namespace!r} must be hexadecimal digits, as `octavo store ls` shows them")
    tenant = name_tenant(salt).hex()
    with _opened(url, endpoint, region, ca_file) as store:
        if not yes and not dry_run:
            typer.confirm(f"Delete what was selected in {url}?", abort=True)
        chosen = (
            found
            for found in list_objects(store)
            if found.namespace.startswith(namespace) and (salt is None or found.tenant == tenant)
        )
        _delete(store, chosen, is_dry=dry_run)


@contextmanager
def _opened(url: str, endpoint: str | None, region: str | None, ca_file: Path | None) -> Iterator[Any]:
    from octavo.stores.objects import ObjectsConfig, asking, open_store  # see above

    options = {"endpoint": endpoint, "region": region, "ca_file": ca_file and str(ca_file)}
    config = ObjectsConfig.from_mapping({"url": url} | {name: given for name, given in options.items() if given})
    scheme, _, folder = config.url.partition("://")
    if scheme == "file" and not Path(folder).is_dir():
        raise InputError(f"{folder}: there is no such folder")  # opening it would make it
    store = open_store(config)
    with asking(config):
        yield store


def _delete(store: Any, chosen: "Iterable[StoredObject]", *, is_dry: bool, of: "Share | None" = None) -> None:
    from octavo.stores.objects import delete_objects  # see above

    with _telling("would be deleted" if is_dry else "deleted") as tell:
        gone = delete_objects(store, chosen, is_dry=is_dry, tell=tell)
    verb = "would be deleted" if is_dry else "deleted"
    write_output(f"{_told(gone)} {verb}" + (f", of {_told(of)}" if of else "") + "\n")


@contextmanager
def _telling(verb: str) -> Iterator[Any]:
    """Progress on a terminal."""
    from rich.console import Console  # slow to import
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("listing")
        yield lambda share: progress.update(task, description=f"{_told(share)} {verb}")


def _told(share: "Share") -> str:
    return f"{share.objects:,} objects, {format_bytes(share.num_bytes)}"


def _age(since_s: int) -> str:
    seconds = max(0, int(time.time()) - since_s)
    for unit_s, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{seconds // unit_s} {name}"
    return f"{seconds} s"
