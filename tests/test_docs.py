"""The files of docs/ that commands make are what the commands make, and what docs/ quotes is what stands there."""

import ast
import re
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from octavo.cli import run
from octavo.errors import InputError
from octavo.router import ROUTER_METRICS, SELECTION_METRICS, EngineAddress
from octavo.server import METRICS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("make_plan_schema.py", "plan.schema.json"),
        ("make_plan_table.py", "plans.md"),
        ("make_settings_table.py", "configuration.md"),
        *((f"make_picture.py {name}", f"pictures/{name}.svg") for name in ("sheets", "resume", "media")),
        ("make_metrics_page.py", "metrics.md"),
    ],
)
def test_is_up_to_date(command, file):
    script, *names = command.split()
    made = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, *names], capture_output=True, text=True, timeout=300, check=True
    )
    assert made.stdout == (ROOT / "docs" / file).read_text(), "run: make docs"


def blocks_of(file, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / file).read_text(), re.MULTILINE | re.DOTALL)


def test_the_table_of_layers_is_that_of_import_linter():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    page = (ROOT / "docs/architecture.md").read_text()
    table = page.partition("\n| Packages |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines()[2:]]
    assert [" | ".join(row) for row in rows] == layers


def test_tests_that_the_docs_name_are_there():
    named = {name for file in (ROOT / "docs").rglob("*.md") for name in re.findall(r"`(test_\w+)`", file.read_text())}
    there = {
        name for file in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    assert named
    assert named <= there


@pytest.mark.parametrize(
    ("page", "example"),
    [
        ("own-engine.md", "own_engine.py"),
        ("own-policy.md", "own_policy.py"),
        ("own-spec.md", "third_party_spec"),
        ("own-tier.md", "own_tier"),
    ],
)
def test_a_tutorial_quotes_its_example(page, example):
    path = ROOT / "examples" / example
    source = "".join(file.read_text() for file in ([path] if path.is_file() else sorted(path.rglob("*.py"))))
    blocks = blocks_of(f"docs/{page}", "python")
    assert blocks
    assert [block for block in blocks if block not in source] == []


def messages_of(tree):
    """The texts of a module, with an ellipsis for what differs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            yield re.sub(r"…+", "…", "".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%[.0-9]*[a-z]", "…", node.value)


@pytest.fixture(scope="module")
def told():
    """All texts of the source."""
    return "\n".join(
        message for file in (ROOT / "src").rglob("*.py") for message in messages_of(ast.parse(file.read_text()))
    )


def test_messages_that_are_explained_are_told(told):
    explained = [block.strip() for block in blocks_of("docs/troubleshooting.md", "text")]
    assert explained
    assert [message for message in explained if message not in told] == []


def test_lines_of_the_log_that_are_explained_are_written(told):
    table = (ROOT / "docs/vllm.md").read_text().partition("## What each log line means\n")[2].partition("\n## ")[0]
    explained = re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)
    assert len(explained) > 10
    parts = {line: [part.strip(" :()") for part in line.split("...")] for line in explained}
    assert [line for line in explained if not all(part in told for part in parts[line])] == []


def test_metrics_that_the_docs_name_are_there():
    pages = [*(ROOT / "docs").rglob("*.md"), *(file for file in (ROOT / "deploy").rglob("*") if file.is_file())]
    named = {name for page in pages for name in re.findall(r"`(octavo_\w+)`", page.read_text())}
    assert named
    assert named - known_metrics() == set()


def known_metrics():
    return {metric.name for metrics in (*METRICS.values(), ROUTER_METRICS, SELECTION_METRICS) for metric in metrics}


@pytest.mark.parametrize("page", ["prometheus/alerts.yaml", "prometheus/alerts_test.yaml", "grafana/octavo.json"])
def test_metrics_that_alerts_and_dashboards_ask_for_are_there(page):
    asked = set(re.findall(r"\boctavo_\w+", (ROOT / "deploy" / page).read_text()))
    histograms = {f"{name}_{part}" for name in known_metrics() for part in ("bucket", "sum", "count")}
    assert asked
    assert asked - known_metrics() - histograms == set()


_CALL = re.compile(r"\boctavo ([a-z][a-z-]*)(?: ([a-z]+)\b)?([^`|;&\n]*)")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def test_flags_that_the_docs_give_octavo_are_there(capsys, monkeypatch):
    """As `octavo COMMAND --help` has them: in examples, in sentences and in what a container is to run."""
    monkeypatch.setenv("COLUMNS", "200")
    flags = {}

    def flags_of(*command):
        if command not in flags:
            code = run([*command, "--help"])
            flags[command] = set(_FLAG.findall(capsys.readouterr().out)) if code == 0 else set()
        return flags[command]

    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "deploy" / "octavo.service"]
    wrong, num_flags = [], 0
    for page in pages:
        for command, part, rest in _CALL.findall(page.read_text().replace("\\\n", " ")):
            for flag in _FLAG.findall(re.split(r"\boctavo ", rest)[0]):
                num_flags += 1
                if flag not in flags_of(command) | (flags_of(command, part) if part else set()):
                    wrong.append(f"{page.name}: octavo {command} {part} {flag}")
    assert num_flags > 100
    assert wrong == []


def test_all_options_of_an_engine_are_explained():
    with pytest.raises(InputError) as refused:
        EngineAddress.parse("http://127.0.0.1:8000,no=option")
    options = re.search(r"is not one of (.*) with a value", str(refused.value)).group(1).split(", ")
    rows = [
        line for line in (ROOT / "docs/configuration.md").read_text().splitlines() if line.startswith("| `engine` |")
    ]
    assert len(rows) == 2, "of octavo route and octavo epp"
    assert [option for option in options for row in rows if f"{option}=" not in row] == []


_ROW_OF_A_MAP = re.compile(r"^    ([a-z0-9_]+(?:(?:, | -> )[a-z0-9_]+)*) {2,}[^ ]", re.MULTILINE)


def source_of(folder, name):
    """The text of a module or of a package."""
    files = [folder / f"{name}.py", *(folder / name).glob("*.py")]
    return "".join(file.read_text() for file in files if file.exists())


def test_the_maps_of_packages_are_true():
    """A package of more than nine modules has one. The modules that it names are there, and an arrow leads to a module
    that is imported."""
    wrong = []
    for package in (ROOT / "src").rglob("__init__.py"):
        folder = package.parent
        rows = _ROW_OF_A_MAP.findall(ast.get_docstring(ast.parse(package.read_text())) or "")
        is_large = folder.name != "octavo" and len(list(folder.glob("*.py"))) > 10
        wrong += [f"{folder} has no map"] if is_large and not rows else []
        for row in rows:
            steps = [step.split(", ") for step in row.split(" -> ")]
            wrong += [f"{folder / name}" for step in steps for name in step if not source_of(folder, name)]
            for callers, called in pairwise(steps):
                text = "".join(source_of(folder, name) for name in callers)
                wrong += [f"{folder}: {row}" for name in called if f".{name} import" not in text]
    assert wrong == []
