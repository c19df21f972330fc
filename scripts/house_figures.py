"""Prints the figures of the house: lines of code by room, the longest functions, and circles of imports.

A line of code is one that is not blank, a comment or a docstring. A room is a package of `octavo`, or a module that
stands beside them. `check_circles.py` finds the imports.
"""

import ast
import io
import signal
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from check_circles import import_graph

SOURCE = Path(__file__).parents[1] / "src"
ROOT = "octavo"
SPINE = (
    "blocks", "chunks", "events", "hashing", "host", "namespace", "offload", "planning", "policies", "registry",
    "recording", "replacing", "settings", "specs", "stores", "tables", "tiers", "transfer", "units", "vllm_plugin",
)  # fmt: skip
"""The rooms that every engine needs."""
MOST_LINES_OF_A_FUNCTION = 60
LARGEST_SHARE = 0.12
_NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Module:
    name: str
    file: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.file.read_text())

    @cached_property
    def docstrings(self) -> set[int]:
        bodies = [getattr(node, "body", None) for node in ast.walk(self.tree)]
        strings = [
            statement
            for body in bodies
            if isinstance(body, list)
            for statement in body
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if isinstance(statement.value.value, str)
        ]
        return {line for string in strings for line in range(string.lineno, (string.end_lineno or 0) + 1)}

    @cached_property
    def code(self) -> set[int]:
        """The numbers of the lines of code."""
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.file.read_text()).readline):
            if token.type not in _NOT_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
        return lines - self.docstrings

    def functions(self) -> Iterator[tuple[int, str]]:
        """The lines of code of each function, and its name."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = len(self.code & set(range(node.lineno, (node.end_lineno or 0) + 1)))
                yield length, f"{self.file.relative_to(SOURCE)}:{node.lineno} {node.name}"


def room_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "the front door"


def read_modules() -> dict[str, Module]:
    modules = {}
    for file in sorted((SOURCE / ROOT).rglob("*.py")):
        name = ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        modules[name] = Module(name=name, file=file)
    return modules


def main() -> None:
    modules = read_modules()
    lines: dict[str, int] = defaultdict(int)
    files: dict[str, int] = defaultdict(int)
    for module in modules.values():
        lines[room_of(module.name)] += len(module.code)
        files[room_of(module.name)] += 1
    total = sum(lines.values())
    print(f"{'room':16}{'lines':>8}{'files':>7}{'share':>8}")
    for room in sorted(lines, key=lambda room: -lines[room]):
        too_large = f"  more than {LARGEST_SHARE:.0%}" if lines[room] > LARGEST_SHARE * total else ""
        print(f"{room:16}{lines[room]:8,}{files[room]:7}{lines[room] / total:8.1%}{too_large}")
    spine = sum(lines[room] for room in SPINE)
    print(f"{'all':16}{total:8,}{sum(files.values()):7}")
    print(f"{'the spine':16}{spine:8,}{sum(files[room] for room in SPINE):7}{spine / total:8.1%}")
    print("\nLongest functions, in lines of code")
    functions = sorted((f for module in modules.values() for f in module.functions()), reverse=True)
    for length, name in [f for i, f in enumerate(functions) if i < 10 or f[0] > MOST_LINES_OF_A_FUNCTION]:
        print(f"{length:6}  {name}")
    graph = import_graph()
    print(f"\nCircles of imports between modules: {find_circle(graph) or 'none'}")
    print(f"Circles of imports between rooms: {find_circle(between_rooms(graph)) or 'none'}")


def between_rooms(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    rooms: dict[str, set[str]] = defaultdict(set)
    for name, targets in graph.items():
        rooms[room_of(name)] |= {room_of(target) for target in targets} - {room_of(name)}
    return rooms


def find_circle(graph: Mapping[str, set[str]]) -> str:
    """The first circle that is found, empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " <- ".join(error.args[1])
    return ""


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
