"""The readable form of a plan: tables, and a picture of a sheet cut into pages."""

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from octavo.planning import PlanReport, format_bytes
from octavo.planning.report import GroupReport

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_MOST_PAGES_DRAWN = 32
_CAUSES = {
    "layer_padding": "layers aligned and padded within a page",
    "page_padding": "pages made equal parts of a sheet",
    "reserved": "rows that no request owns (sinks, null rows)",
    "open_sheets": "pages left over in the last sheet of a class",
    "unleased_sheets": "sheets too few for anything more",
    "remainder": "memory beyond the last whole sheet",
}


def show_plan(report: PlanReport, console: Console | None = None) -> None:
    """Prints the report for a person."""
    console = console or Console()
    title = Text(f"{report.model}: {format_bytes(report.memory_bytes)}, context {report.context:,} tokens")
    if report.tensor_parallel_size > 1:
        title.append(f", one of {report.tensor_parallel_size} ranks")
    console.print(title, style="bold")
    for note in report.notes:
        console.print(Text(f"note: {note}"), style="yellow")
    console.print(_groups_table(report))
    console.print(_sheet_picture(report, width=min(console.width, 100) - 4))
    console.print(_summary(report))
    if report.vllm is not None:
        console.print(_comparison_table(report))


def _groups_table(report: PlanReport) -> Table:
    table = Table(title="Groups", title_justify="left", header_style="bold")
    for heading in ("group", "kind", "layers", "block", "page", "per token", "blocks/request", "bytes/request"):
        table.add_column(heading, justify="left" if heading in {"group", "kind"} else "right")
    for index, group in enumerate(report.groups):
        table.add_row(
            Text(f"{index} ■", style=_colour(index)),
            group.kind,
            str(group.layers),
            str(group.block_size),
            format_bytes(group.page_size_bytes),
            format_bytes(group.bytes_per_token) if group.grows_with_context else "fixed",
            f"{group.blocks_per_request:,}",
            format_bytes(group.bytes_per_request),
        )
    return table


def _sheet_picture(report: PlanReport, width: int) -> Panel:
    """One bar per way to cut a sheet: a cell per page, the padded part of it in light shade."""
    cuts: dict[int, list[int]] = {}
    for index, group in enumerate(report.groups):
        if group.pages_per_sheet:
            cuts.setdefault(group.pages_per_sheet, []).append(index)
    lines: list[Text] = []
    for pages, indices in cuts.items():
        group = report.groups[indices[0]]
        names = ", ".join(str(index) for index in indices)
        one = "1 page" if pages == 1 else f"{pages} pages"
        lines.append(Text(f"group {names}: {one} of {format_bytes(group.padded_page_bytes)}"))
        lines.append(_bar(group, _colour(indices[0]), width))
    title = f"A sheet: {format_bytes(report.sheet_bytes)}; the pool has {report.num_sheets:,}"
    return Panel(Group(*lines), title=title, title_align="left", width=width + 4)


def _bar(group: GroupReport, colour: str, width: int) -> Text:
    drawn = min(group.pages_per_sheet, _MOST_PAGES_DRAWN)
    bar = Text()
    for page in range(drawn):
        cell = width * (page + 1) // drawn - width * page // drawn
        content = max(1, round((cell - 1) * group.page_size_bytes / group.padded_page_bytes)) if cell > 1 else 1
        bar.append("█" * content, style=colour)
        bar.append("░" * max(0, cell - 1 - content), style=colour)
        bar.append(" " * min(1, cell - 1))
    if drawn < group.pages_per_sheet:
        bar.append(f"\n(each cell stands for {group.pages_per_sheet / drawn:.3g} pages)")
    return bar


def _summary(report: PlanReport) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("requests at once", f"{report.requests_at_once:,} of {report.context:,} tokens")
    table.add_row("tokens that fit", f"{report.tokens:,}")
    table.add_row("resume every", f"{report.resume_granularity} tokens (hash blocks of {report.hash_block_size})")
    if report.checkpoint_interval_tokens is not None:
        table.add_row("state checkpoints", f"every {report.checkpoint_interval_tokens:,} tokens")
    table.add_row("wasted", f"{report.waste_fraction:.2%} of the memory")
    for cause, why in _CAUSES.items():
        num_bytes = getattr(report.waste, cause)
        if num_bytes:
            table.add_row("", f"{format_bytes(num_bytes)}: {why}")
    return table


def _comparison_table(report: PlanReport) -> Table:
    vllm = report.vllm
    assert vllm is not None
    table = Table(title="Beside vLLM's plan (one page size for all groups)", title_justify="left", header_style="bold")
    for heading in ("", "Octavo", "vLLM"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row("groups", str(len(report.groups)), str(len(vllm.groups)))
    table.add_row(
        "block sizes", _numbers(g.block_size for g in report.groups), _numbers(g.block_size for g in vllm.groups)
    )
    table.add_row("requests at once", f"{report.requests_at_once:,}", f"{vllm.requests_at_once:,.2f}")
    table.add_row("tokens that fit", f"{report.tokens:,}", f"{vllm.tokens:,}")
    table.add_row("wasted", f"{report.waste_fraction:.2%}", f"{vllm.waste_fraction:.2%}")
    return table


def _numbers(numbers: object) -> str:
    return ", ".join(str(n) for n in dict.fromkeys(numbers))  # type: ignore[call-overload]


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]
