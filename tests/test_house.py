"""The scripts that look at the house: circles of imports are found, and lines of code are counted. All scripts end
quietly when their reader does. And a rule of tests: they set no private attribute of anything but themselves."""

import ast
import os
import re
import runpy
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
SOURCE = ROOT / "src"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return lambda name: runpy.run_path(str(SCRIPTS / f"{name}.py"))


def test_a_circle_through_a_lazy_door_and_a_function_is_found(script, tmp_path, capsys):
    files = {
        "__init__.py": "",
        "front/__init__.py": "import lazy_loader",
        "front/__init__.pyi": "from .noun import Noun as Noun",
        "front/noun.py": "def use():\n    from octavo.back import helper",
        "back.py": "from octavo.front import Noun",
    }
    for name, text in files.items():
        file = tmp_path / "octavo" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    check = script("check_circles")["main"]
    check.__globals__["SOURCE"] = tmp_path
    assert check() == 1
    circle = capsys.readouterr().out
    assert all(module in circle for module in ("octavo.back", "octavo.front", "octavo.front.noun"))


def test_lines_are_of_code(script, tmp_path):
    file = tmp_path / "module.py"
    file.write_text('"""Doc."""\n\n# comment\nx = [\n    1,\n]\n\n\ndef f():\n    """Doc."""\n    return x  # why\n')
    figures = script("house_figures")
    figures["read_modules"].__globals__["SOURCE"] = tmp_path
    module = figures["Module"](name="octavo.room", file=file)
    assert len(module.code) == 5
    assert list(module.functions()) == [(2, "module.py:9 f")]


def test_the_figures_are_printed(script, capsys):
    script("house_figures")["main"]()
    printed = capsys.readouterr().out
    assert "the spine" in printed
    assert "Circles of imports between modules: " in printed


def test_every_script_that_prints_ends_when_its_reader_does():
    prints = [file for file in SCRIPTS.glob("*.py") if re.search(r"\bprint\(|stdout\.write", file.read_text())]
    main = 'if __name__ == "__main__":\n'
    unprepared = {
        file.name
        for file in prints
        if main in file.read_text()
        and f"{main}    signal.signal(signal.SIGPIPE, signal.SIG_DFL)" not in file.read_text()
    }
    assert len(prints) > 3
    assert unprepared == set()


@pytest.mark.parametrize("command", [["house_figures"], ["make_picture", "media"], ["make_settings_table"]])
def test_a_script_says_nothing_when_its_reader_has_gone(command):
    read_end, write_end = os.pipe()
    os.close(read_end)
    script = [sys.executable, SCRIPTS / f"{command[0]}.py", *command[1:]]
    done = subprocess.run(script, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)
    assert done.stderr == ""
    assert done.returncode == -signal.SIGPIPE


def unread_attributes(tree):
    """Private attributes that a module sets, and that nothing in it reads."""
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    written = {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
    read = {node.attr for node in attributes if not isinstance(node.ctx, ast.Store)}
    return {name for name in written - read if re.fullmatch("_[a-z].*", name)}


def test_what_is_set_is_read():
    found = {
        f"{file.relative_to(SOURCE)}: {name}"
        for file in SOURCE.rglob("*.py")
        for name in unread_attributes(ast.parse(file.read_text()))
    }
    assert found == set()
    assert unread_attributes(ast.parse("self._a = 1\nself._b = 1\nself._b.c = self.__d__ = 2")) == {"_a"}


@cache
def trees_of_tests():
    tests = Path(__file__).parent
    return {file.relative_to(tests): ast.parse(file.read_text()) for file in tests.rglob("*.py")}


def found_in_tests(look):
    """What it finds in the trees of all test files, each with its file."""
    return {f"{file}: {found}" for file, tree in trees_of_tests().items() for found in look(tree)}


def private_targets(tree):
    """Attributes of others that are assigned, changed or deleted, and have an underscore before their name."""
    for node in ast.walk(tree):
        if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            target = node
            while isinstance(target, ast.Subscript):
                target = target.value  # what lies in a private attribute is private too
            is_private = isinstance(target, ast.Attribute) and re.match("_.*(?<!__)$", target.attr)
            if is_private and not (isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")):
                yield ast.unparse(target)


def test_tests_set_no_private_attributes_of_others():
    """They would break when a class they look into changes; objects are made as the test needs them."""
    assert found_in_tests(private_targets) == set()


def test_what_sets_a_private_attribute_is_found():
    text = "a._b = 1\nself._b = 1\na.b, a.c._d = 1, 2\na._e[0] += 1\ndel a._f\na.__slots__ = ()\nx = a._g"
    assert sorted(private_targets(ast.parse(text))) == ["a._b", "a._e", "a._f", "a.c._d"]


def hasty_questions(tree):
    """Lines that ask a server, or make who asks, without saying how long an answer may take: then it is 5 s."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.Name("httpx"), "get" | "post" | "stream" | "Client")):
                is_patient = {"timeout", "transport"} & {keyword.arg for keyword in node.keywords}
                if not is_patient:
                    yield node.lineno


def test_tests_give_servers_the_time_that_a_busy_machine_takes():
    assert found_in_tests(hasty_questions) == set()
    assert list(hasty_questions(ast.parse("httpx.get(a)\nhttpx.get(a, timeout=300)\nhttpx.Client(transport=a)"))) == [1]


def partial_readers(tree):
    """Lines of `try` where others' bytes are read, and not all is caught that reading them may raise."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            caught = " ".join(ast.unparse(handler.type) for handler in node.handlers if handler.type)
            body = "\n".join(map(ast.unparse, node.body))
            reads = re.search(r"\bjson\.loads\(", body) or re.search(r"msgspec\.(Decode|Msgspec)Error", caught)
            if reads and not re.search("MALFORMED|RecursionError", caught):
                yield node.lineno


def test_whoever_reads_bytes_of_others_expects_all_that_they_may_be():
    """`errors.MALFORMED`: a decoder's own error is not all that bytes without sense raise."""
    found = {
        f"{file.relative_to(SOURCE)}:{line}"
        for file in SOURCE.rglob("*.py")
        for line in partial_readers(ast.parse(file.read_text()))
    }
    assert found == set()
    partly = (
        "try:\n    json.loads(a)\nexcept ValueError:\n    pass\ntry:\n    b()\nexcept msgspec.DecodeError:\n    pass"
    )
    assert list(partial_readers(ast.parse(partly))) == [1, 5]
