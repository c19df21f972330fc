"""`octavo demo`: one workload over a tiny model of each kind, with ever more tiers, and the proof that answers stay."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from octavo.cli.output import write_output
from octavo.errors import InputError
from octavo.units import format_bytes

if TYPE_CHECKING:
    from octavo.engine import ModeResult

_DIFFERENT = 1
_WIDTH = 130


def demo(
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="Only these kinds of models, such as 'state + full'.", show_default=False),
    ] = None,
) -> None:
    """Serve conversations that do not fit the device, and compare what each tier saves. Downloads nothing."""
    from octavo.cli.engine_imports import require_engine  # torch is no part of the core

    require_engine()
    import torch

    from octavo.engine import KINDS, first_difference, num_turns, run_kind, save_tiny_model

    torch.set_num_threads(1)  # more threads make tiny tensors slower
    kinds = kind or list(KINDS)
    for wrong in [name for name in kinds if name not in KINDS]:
        raise InputError(f"--kind {wrong!r} is not one of {', '.join(map(repr, KINDS))}")
    console = Console(stderr=True)
    table = _new_table()
    differences = []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console) as progress, TemporaryDirectory(prefix="octavo-demo-") as folder:
        bars = {name: progress.add_task(name, total=num_turns()) for name in kinds}
        for name in kinds:
            model = Path(folder) / KINDS[name]
            save_tiny_model(KINDS[name], model)
            disk = Path(folder) / f"{KINDS[name]}-disk"
            results = list(run_kind(name, model, disk, advance=lambda _, bar=bars[name]: progress.advance(bar)))  # type: ignore[misc]
            difference = first_difference(results)
            if difference is not None:
                differences.append(f"{name}: {difference}")
            for result in results:
                table.add_row(
                    *_row(result, is_first=result is results[0], is_same=result.answers == results[0].answers)
                )
    Console(width=max(_WIDTH, console.width)).print(table)
    if differences:
        raise typer.Exit(_fail(differences))
    write_output(
        f"All answers are identical, token by token, in all {len(kinds) * len(results)} runs.\n\n"
        "Serve a model of your own, from a folder with its weights, config and tokenizer:\n"
        "    octavo serve /models/your-model --memory 16GiB --disk /var/cache/octavo --disk-size 200GiB\n"
    )


def _fail(differences: list[str]) -> int:
    write_output(f"ANSWERS DIFFER in {'; '.join(differences)}: this is a bug, please report it.\n")
    return _DIFFERENT


def _new_table() -> Table:
    title = "Conversations take turns on a device that holds two of them"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for heading in ("model\n", "served with\n"):
        table.add_column(heading, no_wrap=True)
    for heading in ("tokens\ncomputed", "resumed\ndevice", "\nmemory", "\ndisk", "first\ntoken", "bytes\nstored"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("\nloaded", justify="right", no_wrap=True)
    table.add_column("\nanswers", no_wrap=True)
    return table


def _row(result: "ModeResult", *, is_first: bool, is_same: bool) -> list[str]:
    resumed = [f"{result.resumed.get(medium, 0):,}" for medium in ("device", "memory", "disk")]
    moved = [format_bytes(count) for count in (result.bytes_stored, result.bytes_loaded)]
    return [
        result.kind if is_first else "",
        result.mode,
        f"{result.tokens_computed:,}",
        *(count if count != "0" else "-" for count in resumed),
        f"{result.mean_first_token_s * 1000:.1f} ms",
        *(amount if amount != "0 B" else "-" for amount in moved),
        "same" if is_same else "DIFFERENT",
    ]
