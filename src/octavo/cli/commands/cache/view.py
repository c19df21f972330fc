"""The readable form of a disk tier's directory."""

import time

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from octavo.cli.drawing import Drawing
from octavo.tiers.disk import DirectoryContent, NamespaceContent
from octavo.units import counted, format_age, format_bytes

_LEAST_COLUMNS, _MOST_COLUMNS = 80, 100
"""A narrower terminal breaks lines; a table would cut numbers short."""
_SHOWN_OF_NAMESPACE = 16
"""The characters of a namespace that are shown; `clear --namespace` needs only the first few."""


def show_namespaces(content: DirectoryContent) -> str:
    if not content.namespaces:
        return _drawn(Text(f"{content.directory}: no chunks here{_what_else(content)}"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("namespace", no_wrap=True)
    for name in ("groups", "chunks", "segments", "bytes", "oldest", "hits"):
        table.add_column(name, justify="right", no_wrap=True)
    for found in content.namespaces:
        table.add_row(
            found.namespace[:_SHOWN_OF_NAMESPACE],
            f"{len(found.groups):,}",
            f"{found.chunks:,}",
            f"{found.segments:,}",
            format_bytes(found.file_bytes),
            _age(found),
            f"{found.hits:,}",
        )
    return _drawn(table, _owners(content), _total(content))


def _owners(content: DirectoryContent) -> Table:
    """Whose each namespace is. Names come from files, so none of the text is read as markup."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("namespace", "model", "dtype", "codec", "layers"):
        table.add_column(name, no_wrap=name == "namespace", overflow="fold")
    for found in content.namespaces:
        whose = (Text(part) for part in _whose(found))
        table.add_row(found.namespace[:_SHOWN_OF_NAMESPACE], *whose)
    return table


def _whose(found: NamespaceContent) -> tuple[str, str, str, str]:
    told = found.description
    if not told:
        return "?", "?", "?", "?"
    codec = told.get("codec", "none")
    if told.get("encryption", "none") != "none":
        codec = "encrypted" if codec == "none" else f"{codec}, encrypted"
    dtype = told.get("dtype") or told.get("cache_dtype") or "?"
    return told.get("model") or "?", dtype, codec, told.get("plan") or "?"


def show_statistics(content: DirectoryContent) -> str:
    holder = f"in use by {content.holder}" if content.holder else "not in use"
    parts: list[RenderableType] = [Text(f"{content.directory}: {holder}")]
    if not content.namespaces:
        parts.append(Text(f"no chunks here{_what_else(content)}"))
    for found in content.namespaces:
        segments = counted(found.segments, "segment")
        title = f"\n{found.namespace}: {segments}, {format_bytes(found.file_bytes)}, {_age(found)} old"
        model, dtype, codec, layers = _whose(found)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("group", "chunks", "payload", "hits"):
            table.add_column(name, justify="right")
        for group, there in sorted(found.groups.items()):
            table.add_row(str(group), f"{there.chunks:,}", format_bytes(there.payload_bytes), f"{there.hits:,}")
        parts += [Text(title, style="bold"), Text(f"{model}, {dtype}, codec {codec}; {layers}"), table]
    parts.append(_total(content))
    return _drawn(*parts)


def _total(content: DirectoryContent) -> Text:
    return Text(f"{format_bytes(content.total_bytes)} in all{_what_else(content)}")


def _what_else(content: DirectoryContent) -> str:
    said = []
    if content.unknown_segments:
        said.append(f"{counted(content.unknown_segments, 'segment')} of a newer version, or damaged")
    if content.other_files:
        said.append(f"{counted(content.other_files, 'other file')}, {format_bytes(content.other_bytes)}")
    return "".join(f"; {part}" for part in said)


def _age(found: NamespaceContent) -> str:
    return format_age((time.time_ns() - found.created_ns) // 10**9) if found.created_ns else "?"


def _drawn(*parts: RenderableType) -> str:
    console = Drawing()
    console.width = max(_LEAST_COLUMNS, min(console.width, _MOST_COLUMNS))
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text))
    return console.text
