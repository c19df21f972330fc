"""A benchmark's figures, as a table and as JSON."""

from collections.abc import Sequence
from math import ceil

import msgspec
from rich import box
from rich.markup import escape
from rich.table import Table

from octavo.cli.commands.bench.run import Measured
from octavo.cli.drawing import Drawing
from octavo.cli.output import printable

_PERCENTILES = (50, 90, 99)


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """The smallest value that at least `percent` percent of the values do not exceed."""
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)] if ordered else None


def to_json(measured: Measured) -> str:
    """All figures by name, as JSON."""
    times = {
        "time_to_first_token_s": measured.first_token_s,
        "inter_token_latency_s": measured.between_tokens_s,
        "request_s": measured.request_s,
    }
    seconds = measured.seconds or 1.0
    figures = {
        "seconds": measured.seconds,
        "requests": {"succeeded": measured.num_succeeded, "failed": measured.num_failed},
        "errors": dict(measured.errors),
        **{name: _percentiles(values) for name, values in times.items()},
        "throughput": {
            "requests_per_s": measured.num_succeeded / seconds,
            "prompt_tokens_per_s": measured.prompt_tokens / seconds,
            "output_tokens_per_s": measured.output_tokens / seconds,
        },
        "tokens": {
            "prompt": measured.prompt_tokens,
            "output": measured.output_tokens,
            "cached": measured.cached_tokens,
            "cached_by_medium": dict(measured.cached_by_medium),
        },
        "hit_rate": _share(measured.cached_tokens, measured.prompt_tokens),
        "samples": [sample._asdict() for sample in measured.samples],
    }
    return msgspec.json.format(msgspec.json.encode(figures)).decode() + "\n"


def show_report(measured: Measured) -> str:
    """The figures for people."""
    console = Drawing(width=80)
    console.print(_times(measured))
    console.print()
    console.print(_totals(measured))
    for message, count in measured.errors.most_common():
        console.print(f"{count:>5} × {printable(message)}", markup=False)
    return console.text


def _times(measured: Measured) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="")
    table.add_column("")
    for percent in _PERCENTILES:
        table.add_column(f"p{percent}", justify="right")
    rows = {
        "time to first token": measured.first_token_s,
        "inter-token latency": measured.between_tokens_s,
        "whole request": measured.request_s,
    }
    for name, values in rows.items():
        table.add_row(name, *map(_milliseconds, _percentiles(values).values()))
    return table


def _totals(measured: Measured) -> Table:
    seconds = measured.seconds or 1.0
    grid = Table.grid(padding=(0, 3, 0, 0))
    grid.add_row("requests", f"{measured.num_succeeded:,} in {measured.seconds:.1f} s, {measured.num_failed:,} failed")
    grid.add_row("output", f"{measured.output_tokens / seconds:,.1f} tokens/s")
    grid.add_row("prompts", f"{measured.prompt_tokens / seconds:,.1f} tokens/s")
    rate = _share(measured.cached_tokens, measured.prompt_tokens)
    if rate is not None:
        by_medium = ", ".join(
            f"{escape(printable(medium))} {tokens / measured.prompt_tokens:.1%}"
            for medium, tokens in measured.cached_by_medium.most_common()
        )
        grid.add_row("resumed", f"{rate:.1%} of prompt tokens" + (f" ({by_medium})" if by_medium else ""))
    return grid


def _percentiles(values: Sequence[float]) -> dict[str, float | None]:
    ordered = sorted(values)
    return {f"p{percent}": percentile(ordered, percent) for percent in _PERCENTILES}


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:,.1f} ms"


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
