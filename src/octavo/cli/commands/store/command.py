"""`octavo store`: what a store that engines share holds, and how it is kept in bounds, beside running engines."""

import json as json_module
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from octavo.chunks import name_tenant
from octavo.cli.commands.store.address import at_a_store
from octavo.cli.commands.store.view import aged_amount_of, amount_of, owner_of, total_of
from octavo.cli.exit_codes import FAILED
from octavo.cli.flags import CommandGroup, bytes_of, is_hex, naming, not_empty
from octavo.cli.output import confirm, write_output
from octavo.errors import InputError
from octavo.namespace import NAMESPACE_PART
from octavo.stores import (
    NOBODY,
    Finding,
    Inventory,
    RemoteSpec,
    Share,
    StoredItem,
    StoreKeeper,
    delete_items,
    expire,
    find_all,
)
from octavo.stores.objects import ObjectsKeeper, Outcome, choose_newest, envelopes_of, warm_disk
from octavo.tiers import TierContext
from octavo.tiers.disk import DiskConfig, DiskIO, DiskTier, describe_copies, find_cipher
from octavo.units import counted, format_bytes, parse_seconds

app = CommandGroup()

_Namespace = Annotated[
    str,
    typer.Option(
        help="Only namespaces whose digest begins so, or whose model has this name.",
        show_default="all",
        callback=not_empty,
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would go, and delete nothing.")]


@app.command(name="ls")
@at_a_store
def list_namespaces(spec: RemoteSpec, *, json: _Json = False) -> None:
    """List the namespaces of each family (a model) and epoch: whose, how much, how old."""
    with _opened(spec) as keeper:
        inventory = _count(keeper)
        names = {name: keeper.describe(*name) for name in {(key[0], key[3]) for key in inventory.namespaces}}
    lines: list[dict[str, Any]] = [
        {"namespace": namespace, "family": family, "epoch": epoch, "is_former": is_former}
        | asdict(share)
        | {"description": names[family, namespace]}
        for (family, epoch, is_former, namespace), share in sorted(inventory.namespaces.items())
    ]
    if json:
        write_output(json_module.dumps(lines, indent=2) + "\n")
        return
    for (family, epoch, is_former, namespace), share in sorted(inventory.namespaces.items()):
        where = f"family {family[:16]}, epoch {epoch}" + (", left behind by a reset" if is_former else "")
        write_output(f"{namespace}  {aged_amount_of(share, keeper)}; {owner_of(names[family, namespace])}; {where}\n")
    if not lines:
        write_output(f"{keeper.url}: no {keeper.item}s of Octavo here\n")


@app.command()
@at_a_store
def stat(spec: RemoteSpec, *, namespace: _Namespace = "", json: _Json = False) -> None:
    """Show all there is: how much, what resets left behind, tenants."""
    with _opened(spec) as keeper:
        inventory = _count(keeper, namespace)
    if json:
        told: dict[str, Any] = asdict(inventory.total)
        told["tenants"] = {tenant: asdict(share) for tenant, share in sorted(inventory.tenants.items())}
        told |= {"former": asdict(inventory.former), "others": inventory.others}
        write_output(json_module.dumps(told, indent=2) + "\n")
        return
    write_output(f"{aged_amount_of(inventory.total, keeper)}; {counted(len(inventory.namespaces), 'namespace')}\n")
    write_output(f"{amount_of(inventory.former, keeper)} left behind by resets: `octavo store gc` deletes them\n")
    write_output(f"{counted(inventory.others, 'other ' + keeper.item)}\n")
    for tenant, share in sorted(inventory.tenants.items()):
        write_output(f"{'without a salt' if tenant == NOBODY else 'tenant ' + tenant}: {amount_of(share, keeper)}\n")


@app.command()
@at_a_store
def verify(spec: RemoteSpec, *, namespace: _Namespace = "") -> None:
    """Read and check all chunks, and tags where the key is known; exit with 1 if any is damaged."""
    checked, found = Share(), Counter[Finding]()
    cipher, keeper = spec.find_cipher(), spec.open_keeper()
    with keeper.asking(), _telling("checked", keeper) as tell:
        chosen = filter(_meant(keeper, namespace), filter(None, keeper.entries()))
        for item, findings in find_all(keeper, chosen, cipher):
            found.update(findings)
            for number, finding in enumerate(findings):
                if finding.is_bad:
                    which = "" if finding is Finding.BAD_INDEX else f"chunk {number} of {len(findings)} is "
                    write_output(f"{item.name}: {which}{finding.value}\n")
            checked.add(item)
            tell(checked)
    _check_any(checked, keeper, namespace)
    num_bad = sum(count for finding, count in found.items() if finding.is_bad)
    tags = f", {found[Finding.AUTHENTIC]:,} of {found.total():,} chunks encrypted with this key" if cipher else ""
    later = f", {found[Finding.LATER]:,} of a later format, which were not checked" if found[Finding.LATER] else ""
    write_output(f"{amount_of(checked, keeper)}: {num_bad} damaged{later}{tags}\n")
    if num_bad:
        raise typer.Exit(FAILED)


@app.command()
@at_a_store
def gc(
    spec: RemoteSpec,
    *,
    size: Annotated[
        str | None, typer.Option(help="What may stay: 10TiB. The oldest objects go.", show_default="all")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(help="Delete what was stored so long ago: 7d.", show_default="none")
    ] = None,
    namespace: _Namespace = "",
    dry_run: _DryRun = False,
) -> None:
    """Delete what resets left behind, what is too old, and the oldest of what is too much. Engines go on meanwhile."""
    most_bytes = None if size is None else bytes_of("--size", size)
    with naming("--older-than"):
        age_s = None if older_than is None else parse_seconds(older_than)
    with _opened(spec) as keeper:
        if keeper.own_expiry and (size or older_than):
            raise InputError(keeper.own_expiry)
        now_s = int(keeper.now_s())
        before_s = 0 if age_s is None else int(now_s - age_s)
        inventory = _count(keeper, namespace)
        if num_bytes := inventory.bytes_ahead(now_s):
            write_output(
                f"{format_bytes(num_bytes)} are dated in the future, by a wrong clock: only --size deletes them\n"
            )
        expiry = expire(inventory, most_bytes=most_bytes, before_s=before_s, now_s=now_s)
        is_meant = _meant(keeper, namespace)
        _delete(keeper, lambda item: is_meant(item) and expiry.takes(item), is_dry=dry_run, of=inventory.total)


@app.command()
@at_a_store
def delete(
    spec: RemoteSpec,
    *,
    salt: Annotated[
        str | None, typer.Option(help="Only what was stored under this salt (a tenant's).", show_default="all")
    ] = None,
    namespace: _Namespace = "",
    dry_run: _DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a tenant's objects, or a namespace's. What engines store meanwhile may stay: stop its requests first."""
    if salt is None and not namespace:
        raise InputError("say which objects: --salt or --namespace; `octavo store gc` deletes by age and size")
    tenant = name_tenant(salt).hex()
    with _opened(spec) as keeper:
        if not yes and not dry_run:
            confirm(f"Delete what was selected in {keeper.url}?")
        is_meant = _meant(keeper, namespace)
        gone = _delete(keeper, lambda item: (salt is None or item.tenant == tenant) and is_meant(item), is_dry=dry_run)
        if salt is None:
            _check_any(gone, keeper, namespace)


@app.command()
@at_a_store
def warm(
    spec: RemoteSpec,
    *,
    disk: Annotated[Path, typer.Option(help="The folder for an engine's --disk.", metavar="FOLDER")],
    size: Annotated[
        str, typer.Option(help="The engine's --disk-size: 100GiB. The newest objects that fit are copied.")
    ],
    namespace: Annotated[
        str,
        typer.Option(
            help="The beginning of a namespace's digest, or its model's name, if there are several.", callback=not_empty
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be copied, and copy nothing.")] = False,
    disk_key_file: Annotated[
        Path | None, typer.Option(help="The key of that engine's disk.", show_default="OCTAVO_DISK_KEY")
    ] = None,
) -> None:
    """Copy an engine's newest chunks into the folder of its disk tier, before it starts. A later run goes on."""
    config = DiskConfig(path=disk, size_bytes=bytes_of("--size", size), key_file=disk_key_file)
    shares = {outcome: Share() for outcome in Outcome}
    cipher, keeper = spec.find_cipher(), spec.open_keeper()
    with keeper.asking():
        if not isinstance(keeper, ObjectsKeeper):
            raise InputError(f"{keeper.url} does not tell which chunks are the newest: give the url of an object store")
        found = _of_one_namespace(keeper, namespace)
        with _telling("to copy", keeper) as tell:
            chosen, damaged = choose_newest(keeper, found, config, keeper.now_s(), tell)
        shares[Outcome.DAMAGED] = total_of(damaged)
        if chosen and not dry_run:
            disk_namespace, envelopes = envelopes_of(keeper, found[0], cipher)
            whose = keeper.describe(found[0].family, found[0].namespace)
            context = TierContext(
                namespace=disk_namespace,
                family=bytes.fromhex(found[0].family),
                max_chunk_bytes=max(chunk.num_bytes for _, chunks in chosen for chunk in chunks),
                identity={name: text for name, text in whose.items() if name != NAMESPACE_PART},
            )
            disk_cipher = find_cipher(disk_key_file, os.environ)
            with (
                closing(DiskTier(config, context, DiskIO(), disk_cipher)) as tier,
                _telling("copied", keeper) as tell,
            ):
                if whose:
                    describe_copies(disk, context, disk_cipher)
                for item, outcome in warm_disk(keeper, chosen, envelopes, tier):
                    shares[outcome].add(item)
                    tell(shares[Outcome.COPIED])
    what = {outcome.value: share for outcome, share in shares.items()}
    if dry_run:
        fitting = total_of(item for item, _ in chosen)
        what = {
            "would be copied, but for those that are there already": fitting,
            Outcome.DAMAGED.value: total_of(damaged),
        }
    told = "; ".join(f"{amount_of(share, keeper)} {outcome}" for outcome, share in what.items())
    write_output(f"{told}; of {len(found):,}\n")
    if shares[Outcome.DAMAGED].count:
        raise typer.Exit(FAILED)


def _of_one_namespace(keeper: StoreKeeper, namespace: str) -> list[StoredItem]:
    """The items of the one namespace that is meant, without those that resets left behind."""
    is_meant = _meant(keeper, namespace)
    found = [item for item in keeper.entries() if item and not item.is_former and is_meant(item)]
    names = sorted({(item.namespace, item.family) for item in found})
    if not names:
        raise InputError(_nothing(keeper, namespace))
    if len(names) > 1:
        which = " or ".join(f"{name} ({owner_of(keeper.describe(family, name))})" for name, family in names)
        raise InputError(f"{keeper.url} has several namespaces: say which with --namespace {which}")
    return found


def _meant(keeper: StoreKeeper, namespace: str) -> Callable[[StoredItem], bool]:
    """Tells the items of the namespaces that a person means by the beginning of a digest, or by a model's name: hex
    digits are always a digest's."""
    if is_hex(namespace):
        return lambda item: item.namespace.startswith(namespace)

    @cache
    def is_meant(family: str, digest: str) -> bool:
        return keeper.describe(family, digest).get("model") == namespace

    return lambda item: is_meant(item.family, item.namespace)


def _check_any(found: Share, keeper: StoreKeeper, namespace: str) -> None:
    if namespace and not found.count:
        raise InputError(_nothing(keeper, namespace))


def _nothing(keeper: StoreKeeper, namespace: str) -> str:
    whose = f"whose digest begins with {namespace!r} or whose model has this name" if namespace else "to copy"
    return f"{keeper.url} has no namespace {whose}: see `octavo store ls`"


@contextmanager
def _opened(spec: RemoteSpec) -> Iterator[StoreKeeper]:
    keeper = spec.open_keeper()
    with keeper.asking():
        yield keeper


def _count(keeper: StoreKeeper, namespace: str = "") -> Inventory:
    inventory, is_meant = Inventory(), _meant(keeper, namespace)
    with _telling("looked at", keeper) as tell:
        for _found in inventory.counting(item for item in keeper.entries() if item is None or is_meant(item)):
            tell(inventory.total)
    _check_any(inventory.total, keeper, namespace)
    return inventory


def _delete(
    keeper: StoreKeeper, takes: Callable[[StoredItem], bool], *, is_dry: bool, of: Share | None = None
) -> Share:
    """Deletes what `takes` chooses, and the descriptions of namespaces of which nothing stays."""
    verb = "would be deleted" if is_dry else "deleted"
    staying: set[str] = set()

    def chosen() -> Iterator[StoredItem]:
        for item in filter(None, keeper.entries()):
            if takes(item):
                yield item
            else:
                staying.add(item.namespace)

    with _telling(verb, keeper) as tell:
        gone = delete_items(keeper, chosen(), is_dry=is_dry, tell=tell)
    if not is_dry:
        keeper.drop_descriptions(staying)
    write_output(f"{amount_of(gone, keeper)} {verb}" + (f", of {amount_of(of, keeper)}" if of else "") + "\n")
    return gone


@contextmanager
def _telling(verb: str, keeper: StoreKeeper) -> Iterator[Callable[[Share], None]]:
    """Shows progress on a terminal."""
    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("listing")
        yield lambda share: progress.update(task, description=f"{amount_of(share, keeper)} {verb}")
