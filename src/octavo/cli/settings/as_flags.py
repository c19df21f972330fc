"""Settings as the parameters of a command, so that Typer shows and reads them."""

from collections.abc import Callable, Iterator, Sequence
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from octavo.cli.settings.setting import MODEL, Catalogue, Setting
from octavo.units import format_bytes, parse_bytes

_INNER_PANELS = {"disk": "Disk", "shared": "Shared store", "kv_events": "KV events"}


def with_settings(catalogue: Catalogue) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command a parameter for each setting, beside its own. It gets their values by name in `settings`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = Signature.from_callable(command, eval_str=True).parameters.values()
        fixed = [parameter for parameter in own if parameter.kind is not Parameter.VAR_KEYWORD]
        flags = [_parameter_of(setting, catalogue) for key, setting in catalogue.settings.items() if key != MODEL]
        command.__signature__ = Signature([*fixed, *flags])  # type: ignore[attr-defined]
        return command

    return decorate


def values_by_key(catalogue: Catalogue, parameters: dict[str, Any]) -> dict[str, object]:
    """The values on the command line, by the settings' keys."""
    by_name = {_name_of(setting): key for key, setting in catalogue.settings.items()}
    return {by_name[name]: _joined(value) for name, value in parameters.items()}


def _joined(value: object) -> object:
    """The values of a flag that may be given several times, as one."""
    return (",".join(value) or None) if isinstance(value, list) else value


def _name_of(setting: Setting) -> str:
    return setting.flag.removeprefix("--").replace("-", "_")


def _parameter_of(setting: Setting, catalogue: Catalogue) -> Parameter:
    flag = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}" if setting.is_switch else setting.flag
    choices = list(setting.choices)
    option = typer.Option(
        flag,
        help=_help_of(setting),
        show_default=False,
        metavar=None if setting.is_switch else "|".join(choices) or metavar_of(setting),
        rich_help_panel=_panel_of(setting, catalogue),
        autocompletion=_completing(choices) if choices else None,
    )
    kind: Any = bool | None if setting.is_switch else list[str] | None if setting.is_repeated else str | None
    return Parameter(_name_of(setting), Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _help_of(setting: Setting) -> str:
    """The flag's help: its description, its default, and whether it may be repeated."""
    default = "" if setting.default is None else f" Default: {shown_value(setting, setting.default)}"
    unit = " s" if default and metavar_of(setting) == "TIME" else ""
    again = " May be given several times." if setting.is_repeated else ""
    return f"{setting.text}{default}{unit}{'.' if default else ''}{again}"


def _panel_of(setting: Setting, catalogue: Catalogue) -> str:
    section, *inner = setting.key.split(".")[:-1]
    return _INNER_PANELS.get(inner[0], inner[0]) if inner else catalogue.sections[section]


def metavar_of(setting: Setting) -> str:
    """One word for the kind of its value."""
    name, description = setting.field.name, setting.description
    words = {"_bytes": "SIZE", "_s": "TIME", "_tokens": "TOKENS", "_len": "TOKENS"}
    for end, word in words.items():
        if name.endswith(end):
            return word
    starts = {"a size": "SIZE", "a path": "PATH", "a whole number": "N", "a list": "LIST", "a mapping": "YAML"}
    return next((word for start, word in starts.items() if description.startswith(start)), "TEXT")


def shown_value(setting: Setting, value: object) -> str:
    """A value as a person would write it, and not another one: 1500MB is 1500000000B, and not 1.4GiB."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() if metavar_of(setting) == "SIZE":
            text = format_bytes(value).replace(" ", "")
            return text if parse_bytes(text, may_be_zero=True) == value else f"{value}B"
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(getattr(value, "value", value))


def _completing(choices: Sequence[str]) -> Callable[[str], Iterator[str]]:
    def complete(incomplete: str) -> Iterator[str]:
        return (choice for choice in choices if choice.startswith(incomplete))

    return complete
