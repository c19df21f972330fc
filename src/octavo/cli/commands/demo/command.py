"""`octavo demo`: how soon a chat about a long document goes on, and the proof that its answers stay the same."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from octavo.cli.commands.demo.kinds import DOCUMENT_TOKENS, KINDS
from octavo.cli.needed_packages import LOADS_TORCH, quiet_transformers, require_engine
from octavo.cli.output import write_output
from octavo.cli.process_group import end_with_code
from octavo.errors import InputError
from octavo.host import temporary_folder
from octavo.http import taking_signals

if TYPE_CHECKING:
    from octavo.cli.commands.demo.run import KindResult


def demo(
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="Only these kinds of models, such as 'state + full'.", show_default=False),
    ] = None,
) -> None:
    """Compare how soon a chat goes on with and without what was computed before. Downloads nothing."""
    kinds = kind or list(KINDS)
    for wrong in [name for name in kinds if name not in KINDS]:
        raise InputError(f"--kind {wrong!r} is not one of {', '.join(map(repr, KINDS))}")
    require_engine()
    write_output(introduction())
    typer.echo(f"(first it {LOADS_TORCH})", err=True)
    quiet_transformers()
    import torch

    from octavo.cli.commands.demo.run import KindResult, run_kind
    from octavo.cli.commands.demo.view import conclusion, show_kind

    torch.set_num_threads(1)  # figures vary less with other work on the machine
    results: list[KindResult] = []
    with taking_signals(end_with_code), temporary_folder("octavo-demo-") as folder:
        for name in kinds:
            with _progress(name) as advance:
                results.append(run_kind(name, folder, advance=advance))
            write_output(show_kind(results[-1]))
    write_output(conclusion(results))
    raise typer.Exit(exit_code(results))


@contextmanager
def _progress(kind: str) -> Iterator[Callable[[str], None]]:
    """A progress bar for the turns over one model. It disappears at the end."""
    from octavo.cli.commands.demo.run import NUM_STEPS

    columns = TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"{kind}: making a model", total=NUM_STEPS)
        yield lambda way: progress.update(task, advance=1, description=f"{kind}: {way}")


def introduction() -> str:
    return (
        f"A chat about a document of {DOCUMENT_TOKENS:,} tokens: how long until the next answer begins?\n"
        "Small models with random weights, one core, a device that holds one chat.\n"
        "Of what was computed, each kind of layer keeps the part that it needs to go on.\n"
    )


def exit_code(results: "list[KindResult]") -> int:
    return 1 if any(result.num_differing for result in results) else 0
