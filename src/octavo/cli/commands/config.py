"""`octavo config`: what `octavo serve`, `route`, `epp` or `select` would be told by a file and the environment."""

import os
from pathlib import Path
from typing import Annotated

import typer
import yaml

from octavo.cli.flags import CommandGroup, naming
from octavo.cli.output import write_output
from octavo.cli.settings import (
    CATALOGUES,
    EPP,
    MODEL,
    ROUTE,
    SELECT,
    SERVE,
    Catalogue,
    Given,
    GivenValues,
    Setting,
    catalogue_of,
    gather_settings,
    picker_settings_from,
    router_settings_from,
    selection_settings_from,
    settings_from,
    shown_value,
)
from octavo.units import counted

app = CommandGroup()

_COMMENT_COLUMN = 48


@app.command()
def check(
    file: Annotated[
        Path,
        typer.Argument(help="A YAML file for --config of `octavo serve`, `route`, `epp` or `select`.", metavar="FILE"),
    ],
) -> None:
    """Say what is wrong with a file, or that nothing is. The environment is left out."""
    catalogue = catalogue_of(file)
    given = gather_settings(catalogue, {}, {}, file)
    with naming(str(file)):
        _check_together(given, catalogue)
    write_output(f"{file}: {counted(len(given), 'setting')}, nothing wrong\n")


@app.command()
def show(
    config: Annotated[
        Path | None, typer.Option(help="The file that is given to the command.", metavar="FILE", show_default=False)
    ] = None,
) -> None:
    """Show what is in force, and where each value comes from, as a file for --config."""
    catalogue = SERVE if config is None else catalogue_of(config)
    given = gather_settings(catalogue, {}, os.environ, config)
    _check_together(given, catalogue)
    write_output("".join(f"{line}\n" for line in _lines(given, catalogue)))


@app.command(name="list")
def list_all() -> None:
    """List every setting with its names, its default and what it means, as Markdown."""
    tables = [_table(section, catalogue) for catalogue in CATALOGUES for section in catalogue.sections]
    write_output("\n".join(tables))


def _table(section: str, catalogue: Catalogue) -> str:
    return (
        f"## {catalogue.sections[section]}\n\nOf `{catalogue.command}`; keys below `{section}:`.\n\n"
        "| Key | Flag | Variable | Default | Meaning |\n|---|---|---|---|---|\n"
        + "".join(_row(one) for key, one in catalogue.settings.items() if key.startswith(f"{section}."))
    )


def _row(setting: Setting) -> str:
    default = "" if setting.default is None else f"`{shown_value(setting, setting.default)}`"
    name = "`MODEL`" if setting.key == MODEL else f"`{setting.flag}`"
    choices = f" One of: {', '.join(setting.choices)}." if setting.choices else ""
    key = setting.key.partition(".")[2]
    return f"| `{key}` | {name} | `{setting.variable}` | {default} | {setting.text}{choices} |\n"


def _check_together(given: GivenValues, catalogue: Catalogue) -> None:
    """Raises InputError if values contradict each other. Only `octavo serve` looks for the model."""
    if catalogue is ROUTE:
        router_settings_from(given)
    elif catalogue is EPP:
        picker_settings_from(given)
    elif catalogue is SELECT:
        selection_settings_from(given)
    else:
        settings_from(given, folder=Path(), model_name="model")


def _lines(given: GivenValues, catalogue: Catalogue) -> list[str]:
    lines: list[str] = []
    open_path: list[str] = []
    for key, setting in catalogue.settings.items():
        *path, name = key.split(".")
        is_off = setting.turned_on_by is not None and setting.turned_on_by not in given
        one = given.get(key)
        if is_off or (setting.turns_on_section and one is None):
            continue
        depth = next((i for i, (a, b) in enumerate(zip(path, open_path, strict=False)) if a != b), len(open_path))
        lines += ["  " * level + f"{step}:" for level, step in enumerate(path) if level >= min(depth, len(path))]
        open_path = path
        text = "  " * len(path) + _text_of(name, setting, one)
        lines.append(text if text.endswith(":") else f"{text:<{_COMMENT_COLUMN}}  # {_source_of(one)}")
    return lines


def _text_of(name: str, setting: Setting, given: Given | None) -> str:
    value = setting.default if given is None else given.value
    if value is None:
        return f"# {name}:"
    return f"# {name}: hidden" if setting.is_secret else f"{name}: {_as_yaml(setting, value)}"


def _source_of(given: Given | None) -> str:
    """The source of a value. A file is named without the key, which is already on the line."""
    return "default" if given is None else given.source.removesuffix(f": {given.setting.key}")


def _as_yaml(setting: Setting, value: object) -> str:
    if not isinstance(value, (str, list, dict)):
        return shown_value(setting, value)
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=1 << 20)
    return text.removesuffix("...\n").strip()
