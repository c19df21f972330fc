"""No import circle in the house: `check_circles.py`.

Imports inside functions and for type checkers count too, and so do the stubs of lazy packages. A module that needs one
above it hides that from Python by importing late, but not from a reader.
"""

import ast
import signal
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


def module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(tree: ast.AST, package: str) -> Iterator[str]:
    """Every dotted name that may be a module: of `from a import b` both `a.b` and `a`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for name in node.names:
                yield f"{base}.{name.name}"


def import_graph() -> dict[str, set[str]]:
    files = sorted({*SOURCE.rglob("octavo/**/*.py"), *SOURCE.rglob("octavo/**/*.pyi")})
    modules = {module_of(file) for file in files}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for file in files:
        module = module_of(file)
        package = module if file.stem == "__init__" else module.rpartition(".")[0]
        for name in imported_names(ast.parse(file.read_text()), package):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != module:
                graph[module].add(target)
    return graph


def main() -> int:
    graph = import_graph()
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        print("import circle:", " <- ".join(error.args[1]))
        return 1
    print(f"{len(graph)} modules, {sum(map(len, graph.values()))} imports between them, no circle")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
