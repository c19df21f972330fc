"""What `octavo vllm-check` has found, as a table, and what is wrong with it."""

from collections.abc import Sequence
from io import StringIO
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table

from octavo.cli.vllm_check_run import COLD, DEVICE, DISK, MEMORY, Measured
from octavo.planning import format_bytes


def show_check(measured: Measured) -> str:
    """One row for each pass."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in ("not computed", "loaded", "bytes", "TTFT", "answers"):
        table.add_column(name, justify="right", no_wrap=True)
    right = measured.passes[DEVICE].answers
    for name, served in measured.passes.items():
        table.add_row(
            name,
            f"{served.cached_tokens / measured.prompt_tokens:.0%}",
            f"{served.loaded_tokens:,} tokens",
            format_bytes(served.loaded_bytes) if served.loaded_bytes else "-",
            f"{median(served.first_token_s) * 1e3:.1f} ms",
            "the same" if served.answers == right else f"{_count_different(served.answers, right)} differ",
        )
    drawn = StringIO()
    console = Console(file=drawn, width=100, highlight=False)
    console.print(table)
    console.print(f"{len(right)} prompts of {measured.prompt_tokens // len(right):,} tokens; answers are compared with")
    console.print("those after vLLM's own prefix hits.")
    return drawn.getvalue()


def find_problem(measured: Measured) -> str | None:
    """What a person should know before using the plug-in here."""
    right = measured.passes[DEVICE].answers
    for name in (MEMORY, DISK):
        served = measured.passes.get(name)
        if served is None:
            continue
        if served.answers != right:
            return (
                f"{name}: {_count_different(served.answers, right)} of {len(right)} answers differ from those after "
                "vLLM's own prefix hits" + _of_vllm_itself(measured)
            )
        if not served.loaded_tokens:
            return (
                f"{name}: nothing was loaded, so nothing is proven: give it more --memory, or more --shared-tokens "
                "than a block of this model has"
            )
    return None


def _of_vllm_itself(measured: Measured) -> str:
    if measured.passes[COLD].answers == measured.passes[DEVICE].answers:
        return ""
    return "; so do those of vLLM alone, between a cold run and its own hits: the model is not reproducible here"


def _count_different(answers: Sequence[Sequence[int]], right: Sequence[Sequence[int]]) -> int:
    return sum(list(a) != list(b) for a, b in zip(answers, right, strict=True))
