"""Prints the figures of the house: lines of code by room, the longest functions, and circles of imports.

A line of code is one that is not blank, a comment or a docstring. A room is a package of `octavo`, or a module that
stands beside them. A circle is a set of modules that import each other, imports inside functions included; those that
only type checkers read do not count.
"""

import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
ROOT = "octavo"
SPINE = (
    "blocks", "chunks", "events", "hashing", "host", "namespace", "offload", "planning", "policies", "registry",
    "settings", "specs", "tables", "tiers", "transfer", "units", "vllm_plugin",
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

    @property
    def room(self) -> str:
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else "the front door"

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

    def imports(self) -> Iterator[ast.ImportFrom]:
        """Those that run at some time, relative ones of a lazy front door left out."""
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                waiting += node.orelse
                continue
            waiting += ast.iter_child_nodes(node)
            if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == ROOT:
                yield node


def read_modules() -> dict[str, Module]:
    modules = {}
    for file in sorted((SOURCE / ROOT).rglob("*.py")):
        name = ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        modules[name] = Module(name=name, file=file)
    return modules


def lazy_exports(module: Module) -> dict[str, str]:
    """For a front door that loads lazily: the module that each of its names comes from."""
    stub = module.file.with_suffix(".pyi")
    if not stub.exists():
        return {}
    imports = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
    return {
        name.asname or name.name: f"{module.name}.{node.module or name.name}" for node in imports for name in node.names
    }


def import_graph(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Which modules each module imports: through a lazy front door, the one that has the name."""
    doors = {name: lazy_exports(module) for name, module in modules.items()}
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, module in modules.items():
        for node in module.imports():
            target = str(node.module)
            for imported in node.names:
                found = [doors.get(target, {}).get(imported.name), f"{target}.{imported.name}", target]
                graph[name].add(next(candidate for candidate in found if candidate in modules))
        graph[name].discard(name)
    return graph


def find_circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The sets of nodes that reach each other."""
    reached = {node: _reachable(graph, node) for node in graph}
    circles = {frozenset(other for other in reached[node] if node in reached[other]) for node in graph}
    return sorted(sorted(circle) for circle in circles if len(circle) > 1)


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for node in graph[waiting.pop()] - seen:
            seen.add(node)
            waiting.append(node)
    return seen


def main() -> None:
    modules = read_modules()
    lines: dict[str, int] = defaultdict(int)
    files: dict[str, int] = defaultdict(int)
    for module in modules.values():
        lines[module.room] += len(module.code)
        files[module.room] += 1
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
    graph = import_graph(modules)
    rooms: dict[str, set[str]] = defaultdict(set)
    for name, targets in graph.items():
        rooms[modules[name].room] |= {modules[target].room for target in targets} - {modules[name].room}
    for title, circles in (("rooms", find_circles(rooms)), ("modules", find_circles(graph))):
        print(f"\nCircles of imports between {title}: {len(circles) or 'none'}")
        for circle in circles:
            print("  " + ", ".join(circle))


if __name__ == "__main__":
    main()
