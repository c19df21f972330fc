"""`octavo demo`: how soon a chat about a long document goes on, and the proof that its answers stay the same."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from textwrap import fill
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

_COLUMNS = 80
_BAR_WIDTH = 31
_EIGHTHS = " ▏▎▍▌▋▊▉"
_NEXT_STEPS = """
Serve such a model, or one of your own, and chat with it:
    {octavo} serve --tiny gemma3
    {octavo} serve /models/yours --memory 16GiB --disk /var/cache/octavo
    {octavo} chat http://127.0.0.1:8000
"""


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


def show_kind(result: "KindResult") -> str:
    """A heading, and a line with a bar for each way of serving."""
    from octavo.cli.commands.demo.run import COMPUTED, MEDIA

    longest = result.first_token_s(COMPUTED)
    lines = [f"\n{result.kind} ({result.family})"]
    for way in (COMPUTED, *MEDIA):
        seconds = result.first_token_s(way)
        ratio = "" if way == COMPUTED else f"{times(result.times_sooner(way))}x"
        lines.append(f"  {way:<26} {seconds * 1000:>7,.0f} ms {ratio:>6}  {_bar(seconds / longest)}")
    lines.append(f"  {_needs(result)}")
    return "\n".join(lines) + "\n"


def _needs(result: "KindResult") -> str:
    """The part of what was computed that the last turn resumed with."""
    parts = [f"{need.blocks} of {need.blocks_in_all} of {need.kind.replace('_', ' ')}" for need in result.needs]
    return f"resumed with blocks: {', '.join(parts)}"


def conclusion(results: "list[KindResult]") -> str:
    """The sentence to remember, or the kinds whose answers differ."""
    from octavo.cli.commands.demo.run import MEDIA

    wrong = [f"{result.num_differing} with {result.kind}" for result in results if result.num_differing]
    if wrong:
        return f"\nANSWERS DIFFER: {', '.join(wrong)}. This is a bug; please report it.\n"
    ratios = [result.times_sooner(way) for result in results for way in MEDIA]
    sentence = (
        f"Octavo computes a conversation once: the next answer begins {times(min(ratios))} to {times(max(ratios))} "
        f"times sooner, after a restart too, and all {sum(len(result.served) for result in results)} answers are the "
        "same, token by token."
    )
    return f"\n{fill(sentence, _COLUMNS)}\n{_NEXT_STEPS.format(octavo=_command())}"


def exit_code(results: "list[KindResult]") -> int:
    return 1 if any(result.num_differing for result in results) else 0


def times(ratio: float) -> str:
    """The ratio, rounded down: it never claims more than was measured."""
    return f"{int(ratio):,}" if ratio >= 10 else f"{int(ratio * 10) / 10:.1f}"


def _command() -> str:
    """The command as it was called where its name alone is not found, as `.venv/bin/octavo` in a clone."""
    called = sys.argv[0]
    return called if Path(called).name == "octavo" and which("octavo") is None else "octavo"


def _bar(share: float) -> str:
    eighths = max(1, round(min(share, 1) * _BAR_WIDTH * 8))
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()
