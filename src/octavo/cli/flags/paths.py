"""Paths on a command line, read as those of settings are: a shell leaves the `~` of `--disk=~/kv` to the command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octavo.cli.flags.values import naming


def read_paths(command: Any, ctx: Any, texts: Mapping[str, Any]) -> None:
    """Puts into the context what the texts of its paths mean. Raises InputError for empty text, and for a home
    directory that is not known."""
    for parameter in command.get_params(ctx):
        match ctx.params.get(parameter.name), texts.get(str(parameter.name)):
            case Path(), str(text):
                ctx.params[parameter.name] = _read_path(parameter, text)
            case [Path(), *_], [*several]:
                ctx.params[parameter.name] = [_read_path(parameter, text) for text in several]


def _read_path(parameter: Any, text: str) -> Path:
    if text and not text.startswith("~"):
        return Path(text)
    from octavo.settings import read_path  # yaml, which some commands do without

    with naming(max(parameter.opts, key=len)):
        return read_path(text)
