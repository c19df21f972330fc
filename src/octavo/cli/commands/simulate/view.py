"""The results of simulations, as tables and a curve for a terminal of 80 columns, and as JSON."""

import os
from typing import TYPE_CHECKING

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from octavo.cli.commands.simulate.question import Question
from octavo.cli.drawing import Drawing
from octavo.units import counted, format_bytes, parse_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo.sim import SimReport, Trace, Worth

    Worths = Sequence[Worth] | None
    Results = Sequence[tuple[Question, SimReport]]

_BAR = 40
_BAR_WITH_MONEY = 24
_OVERLOADED = (
    "The engines are too slow for this trace: requests came for {}, and were served after {}.\nTimes then tell the "
    "queue. Try more --engines, or the speeds of a faster machine."
)
_MOST_SECONDS, _MOST_MINUTES = 120, 120
"""What is told in seconds, and what in minutes."""
_KNEE_SHARE = 0.95
"""The knee of a curve: the smallest size that brings this much of what the largest brings."""


def to_json(trace: "Trace", results: "Results", *, swept: str | None, worths: "Worths" = None) -> str:
    """The results as JSON."""
    answers: list[dict[str, object]] = [
        {
            "configuration": {"model": os.fsencode(question.model).decode(errors="replace")} | _settings(question),
            "resumed_share": report.resumed_share,
            "seen_share": report.seen_share,
            **msgspec.to_builtins(report),
        }
        for question, report in results
    ]
    for answer, worth in zip(answers, worths or (), strict=False):
        answer["money_per_hour"] = {"net": worth.net, **msgspec.to_builtins(worth)}
    found = {
        "trace_block_tokens": trace.block_tokens,
        "refused_requests": trace.num_refused,
        "swept": swept,
        "results": answers,
    }
    return msgspec.json.format(msgspec.json.encode(found)).decode() + "\n"


def show_results(trace: "Trace", results: "Results", *, swept: str | None, worths: "Worths" = None) -> str:
    """Prints the results for people."""
    console = Drawing(width=80)
    first = results[0][1]
    is_fleet = results[0][0].engines > 1
    requests, tokens = counted(first.num_requests, "request"), counted(first.prompt_tokens, "prompt token")
    came = f" within {_time_text(first.arrivals_s)}" if first.arrivals_s else ""
    console.print(Text(f"{requests}{came}, {tokens}", style="bold"))
    console.print(
        f"{first.seen_share:.1%} of them had been computed before{' by the same engine' if is_fleet else ''}."
    )
    if trace.num_refused:
        console.print(f"{counted(trace.num_refused, 'request')} beside them: too long for --max-model-len.")
    if trace.block_tokens > results[0][0].block_size:
        console.print(f"The trace tells no prefix more finely than {trace.block_tokens} tokens.")
    if swept is not None:
        console.print(_curve(results, swept, worths))
        console.print(_knee(results, swept))
        if worths is not None:
            console.print(_knee_by_money(results, swept, worths))
    else:
        console.print(_table(results, worths))
        for index, (_, report) in enumerate(results, start=1):
            if report.lost:
                console.print(_lost(report, "Computed again" if len(results) == 1 else f"({index}) computed again"))
    if any(report.is_overloaded for _, report in results):
        console.print(
            Text(_OVERLOADED.format(_time_text(first.arrivals_s), _time_text(first.duration_s)), style="yellow")
        )
    if not all(report.is_whole for _, report in results):
        console.print(Text("Interrupted: this is about the requests that had been served.", style="yellow"))
    return console.text


def _settings(question: "Question") -> dict[str, object]:
    names = (
        "device", "memory", "disk", "policy", "engines", "placement", "block_size", "checkpoint_interval_tokens",
        "step_tokens",
    )  # fmt: skip
    return {name: getattr(question, name) for name in names} | {"speeds": msgspec.to_builtins(question.speeds)}


def _table(results: "Results", worths: "Worths") -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=len(results) > 1)
    table.add_column("")
    for index, _ in enumerate(results):
        table.add_column(f"({index + 1})", justify="right")
    questions = [question for question, _ in results]
    reports = [report for _, report in results]
    for name in ("device", "memory", "disk", "policy"):
        table.add_row(name, *(_size_text(str(getattr(question, name))) for question in questions))
    if questions[0].engines > 1:
        table.add_row("engines", *(f"{question.engines:,}" for question in questions))
        table.add_row("placement", *(question.placement for question in questions))
    table.add_section()
    table.add_row("prompt tokens resumed", *(f"{report.resumed_share:.1%}" for report in reports), style="bold")
    for medium in dict.fromkeys(medium for report in reports for medium in report.resumed_tokens):
        shares = (report.resumed_tokens.get(medium, 0) / report.prompt_tokens for report in reports)
        table.add_row(f"  from {medium}", *(f"{share:.1%}" for share in shares))
    table.add_section()
    for name, times in (
        ("first token, mean", [report.ttft_mean_s for report in reports]),
        ("            median", [report.ttft_p50_s for report in reports]),
        ("            99%", [report.ttft_p99_s for report in reports]),
    ):
        table.add_row(name, *(f"{seconds:,.2f} s" for seconds in times))
    for verb, amounts in (
        ("stored", [report.bytes_stored for report in reports]),
        ("loaded", [report.bytes_loaded for report in reports]),
    ):
        for medium in dict.fromkeys(medium for of_report in amounts for medium in of_report):
            table.add_row(f"{verb}, {medium}", *(format_bytes(of_report.get(medium, 0)) for of_report in amounts))
    if worths is not None:
        table.add_section()
        table.add_row("memory and disk, an hour", *(f"{worth.cost:,.2f}" for worth in worths))
        table.add_row("computing saved, an hour", *(f"{worth.saved:,.2f}" for worth in worths))
        table.add_row("tokens loaded for 1", *(_tokens_per_money(worth) for worth in worths))
    return table


def _tokens_per_money(worth: "Worth") -> str:
    return "" if worth.tokens_per_money is None else f"{worth.tokens_per_money:,.0f}"


def _lost(report: "SimReport", title: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", title_style="bold")
    table.add_column("because")
    table.add_column("group")
    table.add_column("of the prompt tokens", justify="right")
    for lost in report.lost:
        table.add_row(lost.cause, lost.group, f"{lost.num_tokens / report.prompt_tokens:.1%}")
    return table


def _curve(results: "Results", swept: str, worths: "Worths") -> Table:
    width = _BAR if worths is None else _BAR_WITH_MONEY
    table = Table(box=None, pad_edge=False)
    table.add_column(swept, justify="right")
    table.add_column("resumed", justify="right")
    table.add_column("", width=width)
    table.add_column("first token", justify="right")
    if worths is not None:
        table.add_column("tokens for 1", justify="right")
        table.add_column("net an hour", justify="right")
    most = max(report.seen_share for _, report in results) or 1.0
    for index, (question, report) in enumerate(results):
        bar = "█" * round(width * report.resumed_share / most)
        money = () if worths is None else (_tokens_per_money(worths[index]), f"{worths[index].net:,.2f}")
        size = _size_text(getattr(question, swept))
        table.add_row(size, f"{report.resumed_share:.1%}", bar, f"{report.ttft_mean_s:,.2f} s", *money)
    return table


def _knee(results: "Results", swept: str) -> str:
    best = max(report.resumed_share for _, report in results)
    question, report = next((q, r) for q, r in results if r.resumed_share >= _KNEE_SHARE * best)
    size = _size_text(getattr(question, swept))
    share = f"{report.resumed_share:.1%}"
    if question is results[-1][0]:
        more = "more may bring more"
    elif f"{best:.1%}" == share:
        more = "more brings nothing"
    else:
        more = f"more brings up to {best:.1%}"
    return (
        f"\nWith {size} of {swept} {share} is resumed; {more}.\n"
        "A full bar is the ceiling: all that had been computed before. Times are means."
    )


def _knee_by_money(results: "Results", swept: str, worths: "Sequence[Worth]") -> str:
    best = max(range(len(worths)), key=lambda index: worths[index].net)
    size, worth = _size_text(getattr(results[best][0], swept)), worths[best]
    if worth.net <= 0:
        return "By money: no size saves more computing than it costs."
    return f"By money: {size} save {worth.saved:,.2f} of computing an hour, and cost {worth.cost:,.2f}."


def _time_text(seconds: float) -> str:
    if seconds < _MOST_SECONDS:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:,.0f} min" if seconds < _MOST_MINUTES * 60 else f"{seconds / 3600:,.1f} h"


def _size_text(value: str) -> str:
    """A size as it was asked for. One of a sweep, in bytes, is shown in larger units."""
    num_bytes = value.removesuffix("B")
    return format_bytes(int(num_bytes)) if num_bytes.isdecimal() and value != "0" else value


def size_in_gib(value: str) -> float:
    """A size in GiB, for an axis."""
    return parse_bytes(value) / (1 << 30)
