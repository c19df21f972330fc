"""The readable form of a plan, 80 columns wide: tables, and a picture of a sheet cut into pages."""

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from octavo.cli.commands.plan.sheet_picture import sheet_picture
from octavo.cli.drawing import Drawing
from octavo.planning import GroupReport, PlanReport, VllmReport
from octavo.units import counted, format_bytes

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_MOST_COLUMNS = 100
_NO_BOUND = 1000
_COUNTS_DIFFER = "(vLLM counts fractions of a request; Octavo whole ones, and a shorter last one)"
_CAUSES = {
    "layer_padding": "layers aligned and padded within a page",
    "page_padding": "pages made equal parts of a sheet",
    "reserved": "rows that no request owns (sinks, null rows)",
    "open_sheets": "pages left over in the last sheet of a class",
    "unleased_sheets": "sheets too few for anything more",
    "remainder": "memory beyond the last whole sheet",
}


def show_plan(report: PlanReport) -> str:
    """The report for a person: of the terminal's width, or of that of its widest table, as a number that is cut short
    would be another number. In colour where there is a terminal."""
    console = Drawing()
    has_contexts = len(report.contexts) > 1
    tables = [_groups_table(report), *([_contexts_table(report)] if has_contexts else [])]
    unbound = console.options.update(width=_NO_BOUND)
    least = max(Measurement.get(console, unbound, table).maximum for table in tables)
    console.width = max(min(console.width, _MOST_COLUMNS), least)
    sections: list[tuple[str, RenderableType]] = [
        ("Groups", _groups_table(report)),
        ("", _sheet_lines(report, console.width)),
        ("Capacity", _capacity(report)),
        ("", _waste(report)),
    ]
    if has_contexts:
        sections.append(("By context", _contexts_table(report)))
    if report.vllm is not None:
        sections.append(("Beside vLLM's plan", Group(_comparison_table(report, report.vllm), _COUNTS_DIFFER)))
    console.print(_title(report), style="bold")
    for note in report.notes:
        console.print(Text(f"Note: {note}", style="yellow"))
    for heading, section in sections:
        console.print(Text(f"\n{heading}" if heading else "", style="bold"))
        console.print(section)
    return console.text


def _title(report: PlanReport) -> Text:
    title = Text(f"{report.model}: {format_bytes(report.memory_bytes)}, context {report.context:,} tokens")
    if report.tensor_parallel_size > 1:
        title.append(f", one of {report.tensor_parallel_size} ranks")
    return title


def _groups_table(report: PlanReport) -> Table:
    table = _table()
    has_windows = any(group.window_tokens for group in report.groups)
    table.add_column("", no_wrap=True)
    table.add_column("layers", no_wrap=True)
    for heading in (*(("window",) if has_windows else ()), "block", "page", "per token", "request"):
        table.add_column(heading, justify="right", no_wrap=True)
    widest = max(len(str(group.layers)) for group in report.groups)
    for index, group in enumerate(report.groups):
        window = f"{group.window_tokens:,}" if group.window_tokens else ""
        table.add_row(
            Text(f"■ {index}", style=_colour(index)),
            f"{group.layers:>{widest}} × {group.kind}",
            *((window,) if has_windows else ()),
            f"{group.block_size:,}",
            format_bytes(group.page_size_bytes),
            format_bytes(group.bytes_per_token) if group.grows_with_context else "fixed",
            format_bytes(group.bytes_per_request),
        )
    return table


def _sheet_lines(report: PlanReport, width: int) -> Text:
    """One bar per way to cut a sheet."""
    heading = f"A sheet of {format_bytes(report.sheet_bytes)}; the pool has {report.num_sheets:,}\n"
    lines = Text.assemble((heading, "bold"))
    by_class: dict[int, list[int]] = {}
    for index, group in enumerate(report.groups):
        if group.pages_per_sheet:
            by_class.setdefault(group.pages_per_sheet, []).append(index)
    cuts = [(report.groups[members[0]], members) for members in by_class.values()]
    picture = sheet_picture([(g.pages_per_sheet, g.page_size_bytes / g.padded_page_bytes) for g, _ in cuts], width - 4)
    for (group, members), bar in zip(cuts, picture, strict=True):
        names = ", ".join(map(str, members))
        colour = _colour(members[0])
        lines.append(Text.assemble((f"■ {names}", colour), f"  {_pages(group)}"))
        if bar.pages_per_cell > 1:
            lines.append(f"; a cell is {bar.pages_per_cell} pages")
        lines.append(Text.assemble("\n", " " * 4, (bar.text, colour), "\n"))
    lines.rstrip()
    return lines


def _pages(group: GroupReport) -> str:
    padding = 1 - group.page_size_bytes / group.padded_page_bytes
    pages = counted(group.pages_per_sheet, "page")
    return f"{pages} of {format_bytes(group.padded_page_bytes)}" + (f", {padding:.2%} padding" if padding else "")


def _capacity(report: PlanReport) -> Table:
    growing = sum(group.bytes_per_token for group in report.groups if group.grows_with_context)
    fixed = sum(group.bytes_per_request for group in report.groups if not group.grows_with_context)
    parts = [f"{format_bytes(growing)} per token"] if growing else []
    parts += [f"{format_bytes(fixed)} whatever its length"] if fixed else []
    grid = Table.grid(padding=(0, 3, 0, 0))
    grid.add_row("tokens", f"{report.tokens:,}")
    grid.add_row("requests at once", f"{report.requests_at_once:,} of {report.context:,} tokens")
    grid.add_row("a request takes", " and ".join(parts))
    grid.add_row("resume every", f"{report.resume_granularity:,} tokens (hash blocks of {report.hash_block_size:,})")
    if report.weight_bytes is not None:
        grid.add_row("weights", f"{format_bytes(report.weight_bytes)}, beside the memory planned here")
    if report.checkpoint_interval_tokens is not None:
        grid.add_row("state checkpoints", f"every {report.checkpoint_interval_tokens:,} tokens")
    return grid


def _contexts_table(report: PlanReport) -> Table:
    table = _table()
    for heading in ("context", "requests at once", "tokens", "a request takes"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in report.contexts:
        taken = format_bytes(row.bytes_per_request)
        table.add_row(f"{row.context:,}", f"{row.requests_at_once:,}", f"{row.tokens:,}", taken)
    return table


def _waste(report: PlanReport) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    for cause, why in _CAUSES.items():
        num_bytes = getattr(report.waste, cause)
        if num_bytes:
            table.add_row(format_bytes(num_bytes), why)
    grid = Table.grid()
    grid.add_row(Text(f"Wasted: {report.waste_fraction:.2%} of the memory", style="bold"))
    grid.add_row(Padding(table, (0, 0, 0, 2)))
    return grid


def _comparison_table(report: PlanReport, vllm: VllmReport) -> Table:
    table = _table()
    table.add_column("")
    for heading in ("Octavo", "vLLM", "Octavo / vLLM"):
        table.add_column(heading, justify="right")
    ours, theirs = report.groups, vllm.groups
    table.add_row("tokens", f"{report.tokens:,}", f"{vllm.tokens:,}", _ratio(report.tokens, vllm.tokens))
    table.add_row("requests at once", f"{report.requests_at_once:,}", f"{vllm.requests_at_once:,.2f}", "")
    table.add_row("groups", f"{len(ours):,}", f"{len(theirs):,}", _ratio(len(ours), len(theirs)))
    table.add_row(
        "block sizes",
        _range_of(group.block_size for group in ours),
        _range_of(group.block_size for group in theirs),
        _ratio(max(group.block_size for group in ours), max(group.block_size for group in theirs)),
    )
    table.add_row(
        "wasted",
        f"{report.waste_fraction:.2%}",
        f"{vllm.waste_fraction:.2%}",
        _ratio(report.waste_fraction, vllm.waste_fraction),
    )
    return table


def _ratio(ours: float, theirs: float) -> str:
    if not theirs:
        return ""
    ratio = ours / theirs
    return f"{ratio:.2f}x" if ratio >= 0.1 else f"{ratio:.2g}x"


def _range_of(numbers: Iterable[int]) -> str:
    distinct = sorted(set(numbers))
    return f"{distinct[0]:,}" if len(distinct) == 1 else f"{distinct[0]:,} to {distinct[-1]:,}"


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="")


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]
