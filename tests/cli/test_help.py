"""Help of every command that the parser has, in a terminal of 80 columns."""

from pathlib import Path

import pytest
import typer

from octavo.cli.command import app
from octavo.cli.commands import COMMANDS as LINES, load_command

EXAMPLE = Path(__file__).parents[2] / "examples/models/gemma-3-27b.json"


def commands_of(command, path=()):
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands_of(child, (*path, name))


COMMANDS = {(): typer.main.get_command(app)}
for _name in LINES:
    COMMANDS.update(commands_of(load_command(_name), (_name,)))


@pytest.mark.parametrize("name", LINES)
def test_the_help_of_all_commands_says_what_each_says_of_itself(name):
    about = COMMANDS[name,].help.partition("\n\n")[0]
    assert " ".join(about.split()) == LINES[name][1]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_fits_80_columns_and_says_every_word_whole(path, octavo):
    command = COMMANDS[path]
    shown = octavo(*path, "--help")
    assert (shown.code, shown.err) == (0, "")
    assert max(map(len, shown.out.splitlines())) <= 80
    about = [command.help, *(parameter.help for parameter in command.params if "--help" not in parameter.opts)]
    assert all(about), "each command and each parameter says what it is"
    flags = [opt for parameter in command.params if not parameter.hidden for opt in parameter.opts if opt[:2] == "--"]
    texts = [*about, *getattr(command, "commands", {})]
    words = [*flags, *(word for text in texts for word in text.split())]
    assert [word for word in words if word not in shown.out.split()] == []
    assert octavo(*path, "-h") == shown


def test_a_terminal_of_unknown_size_is_no_empty_answer(octavo, monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    assert "Usage" in octavo("--help").out
    assert "Capacity" in octavo("plan", EXAMPLE).out


def test_a_selection_service_is_never_said_to_let_in_everybody(octavo):
    said = " ".join(octavo("select", "--help").out.split())
    assert "Without --api-key, a key is made" in said
    assert "everybody" not in said
