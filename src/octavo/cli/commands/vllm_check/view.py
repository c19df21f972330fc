"""The results of `octavo vllm-check` as a table, and the problems in them.

An answer after a load is right if vLLM gave it without a load in any of the engines: in bfloat16, sums are rounded
differently if an engine lies differently in memory, with or without the plug-in.
"""

from statistics import median

from rich import box
from rich.table import Table

from octavo.cli.commands.vllm_check.run import COLD, DEVICE, DISK, MEMORY, Measured, Pass
from octavo.cli.drawing import Drawing
from octavo.units import counted, format_bytes


def show_check(measured: Measured) -> str:
    """One row for each pass."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in ("not computed", "loaded", "bytes", "TTFT", "answers"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, served in measured.passes.items():
        different = _count_wrong(measured, served) if served.loaded_tokens else _count_unlike(measured, served)
        table.add_row(
            name,
            f"{served.cached_tokens / measured.prompt_tokens:.0%}",
            f"{served.loaded_tokens:,} tokens",
            format_bytes(served.loaded_bytes) if served.loaded_bytes else "-",
            f"{median(served.first_token_s) * 1e3:.1f} ms",
            f"{different} differ" if different else "the same",
        )
    console = Drawing(width=100)
    console.print(table)
    num_prompts = len(measured.passes[DEVICE].answers)
    console.print(
        f"{counted(num_prompts, 'prompt')} of {measured.prompt_tokens // num_prompts:,} tokens. Answers after loads are"
    )
    console.print("compared with all that vLLM gave without loads, others with those after its own prefix hits.")
    return console.text


def find_problem(measured: Measured) -> str | None:
    """A problem that a person should know before using the plug-in here."""
    for name in (MEMORY, DISK):
        served = measured.passes.get(name)
        if served is None:
            continue
        if name == DISK and not served.chunks_from_disk:
            return f"{name}: nothing was read from there, so nothing is proven: " + (
                served.why_no_disk or "give it more --disk-size, or more --shared-tokens than a block of this model has"
            )
        if not served.loaded_tokens:
            return (
                f"{name}: nothing was loaded, so nothing is proven: give it more --memory, or more --shared-tokens "
                "than a block of this model has"
            )
        if wrong := _count_wrong(measured, served):
            return (
                f"{name}: {wrong} of {len(served.answers)} answers are none that vLLM gave without loads"
                + _of_vllm_itself(measured)
            )
    return None


def show_gain(measured: Measured) -> str:
    """The gain of the plug-in, if there is no problem."""
    cold = median(measured.passes[COLD].first_token_s)
    gains = []
    for name in (MEMORY, DISK):
        if (served := measured.passes.get(name)) is not None:
            ratio = cold / median(served.first_token_s)
            gains.append(
                f"{name.removeprefix('Octavo ')} {served.loaded_tokens / measured.prompt_tokens:.0%} of prompt tokens, "
                f"first token {ratio:.1f}x {'sooner' if ratio >= 1 else 'as soon'}"
            )
    num_answers = len(measured.passes[DEVICE].answers)
    return f"the plug-in works here. All {num_answers} answers are vLLM's own; loaded from {'; from '.join(gains)}."


def _of_vllm_itself(measured: Measured) -> str:
    if not _count_unlike(measured, measured.passes[COLD]):
        return ""
    return "; vLLM's own differ between a cold run and its prefix hits, too: the model is not reproducible here"


def _count_unlike(measured: Measured, served: Pass) -> int:
    """The number of answers that differ from those after vLLM's own hits."""
    return sum(a != b for a, b in zip(served.answers, measured.passes[DEVICE].answers, strict=True))


def _count_wrong(measured: Measured, served: Pass) -> int:
    """The number of answers that were never given without a load."""
    right = [known.answers for known in measured.passes.values() if not known.loaded_tokens]
    return sum(all(answer != known[index] for known in right) for index, answer in enumerate(served.answers))
