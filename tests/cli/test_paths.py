"""Paths on a command line: `~` is the home directory however a shell hands it on, and empty text is no path."""

from pathlib import Path

import pytest

from octavo.cli.commands import COMMANDS, load_command
from octavo.errors import InputError


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def commands_of(command):
    children = getattr(command, "commands", None)
    return [command] if children is None else [one for child in children.values() for one in commands_of(child)]


def read(command, parameter, text):
    """The parameter's value, where it is given with this text and all others that are needed with another."""
    words, arguments = [], []
    for other in command.params:
        value = text if other is parameter else "1"
        if other is parameter or other.required:
            is_argument = other.param_type_name == "argument"
            (arguments if is_argument else words).extend([value] if is_argument else [max(other.opts, key=len), value])
    value = command.make_context("octavo", [*words, "--", *arguments]).params[parameter.name]
    return value[0] if isinstance(value, list) else value


PATHS = [
    pytest.param(command, parameter, id=f"{command.name} {max(parameter.opts, key=len)}")
    for name in COMMANDS
    for command in commands_of(load_command(name))
    for parameter in command.params
    if "pathlib" in str(parameter.type_descriptor.annotation)
]


@pytest.mark.parametrize(("command", "parameter"), PATHS)
def test_a_path_may_begin_with_the_home_directory(command, parameter, home):
    """Shells write it out where it begins a word, and not in `--disk=~/kv`."""
    assert read(command, parameter, "~/kv") == home / "kv"
    assert read(command, parameter, "./~/kv") == Path("~/kv"), "a folder of that name, as to a shell"
    for text in ("", "~nobody-has-this-name/kv"):
        with pytest.raises(InputError, match=parameter.opts[0].lstrip("-").partition("-")[0]):
            read(command, parameter, text)


def test_no_folder_is_called_like_the_home_directory(octavo, home):
    assert octavo("events", "keys", "~/keys").code == 0
    assert [path.name for path in home.parent.iterdir()] == ["home"]
    assert (home / "keys" / "publisher.key").exists()


def test_a_model_may_lie_in_the_home_directory(octavo, home):
    config = Path(__file__).parents[2] / "examples/models/llama-3.1-8b.json"
    (home / "model").mkdir()
    (home / "model" / "config.json").write_bytes(config.read_bytes())
    assert octavo("plan", "~/model").code == 0
    (home / "serve.yaml").write_text("engine: {model: ~/model, dtype: nonsense}")
    assert "dtype" in octavo("serve", "--config=~/serve.yaml").err
