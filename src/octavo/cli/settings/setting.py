"""`Setting`: one value that a person can give to `octavo serve`, `route`, `epp` or `select`. Its declaration is a field
of a `Settings` struct. A `Catalogue` has all of one command.

    class DiskConfig(Settings):                    offload.disk.size     in a file
        size_bytes: Size = field(name="size")      OCTAVO_DISK_SIZE      in the environment
                                                   --disk-size           on the command line

A struct within a struct is a section: its settings bear its name, and its first one, which turns it on, is called as
the section is (`offload.disk.path` is `--disk`). A YAML key names its unit (`send_timeout_s`); a flag does not, since
its value may (`--send-timeout 2m`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import inspect

from octavo.cli.flags import naming
from octavo.cli.settings.text import is_list_of_text, kinds_of, read_text
from octavo.engine import EngineConfig
from octavo.gateway import PickerConfig
from octavo.offload import OffloadConfig
from octavo.router import RouterConfig, SelectionConfig
from octavo.server import ServerConfig
from octavo.settings import Settings, describe, texts_of

MODEL = "engine.model"
"""The setting that is an argument, not a flag."""
_UNITS = ("_bytes", "_seconds", "_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value that a person can give, and its names."""

    key: str
    """Its name in a file: `offload.disk.size`."""
    flag: str
    owner: type[Settings]
    field: msgspec.structs.FieldInfo
    text: str
    """Its description, in plain words."""
    turned_on_by: str | None = None
    """The key of the first setting of its section, if that is a section within a section."""
    turns_on_section: bool = False
    """Whether it is the first setting of such a section, and so turns it on."""

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return "OCTAVO_" + self.flag.removeprefix("--").replace("-", "_").upper()

    @property
    def default(self) -> object:
        """The default; None if there is none, or it is found later."""
        default = self.field.default
        return None if self.turns_on_section or default in (msgspec.NODEFAULT, (), "") else default

    @property
    def is_switch(self) -> bool:
        return self.field.type is bool

    @property
    def is_repeated(self) -> bool:
        """Whether its flag may be given several times."""
        return is_list_of_text(self.field.type)

    @property
    def is_secret(self) -> bool:
        return any(isinstance(one, inspect.Metadata) and _says_secret(one) for one in kinds_of(self.field.type))

    @property
    def choices(self) -> tuple[str, ...]:
        """The names to choose from, if it is a choice."""
        for kind in kinds_of(self.field.type):
            if isinstance(kind, inspect.EnumType):
                return tuple(str(member.value) for member in kind.cls)
            if isinstance(kind, inspect.LiteralType):
                return tuple(map(str, kind.values))
        return ()

    @property
    def description(self) -> str:
        """The kind of its value."""
        return describe(self.field.type)

    def check(self, value: object, *, name: str) -> object:
        """The checked value as the struct takes it, read from text if need be. InputError calls the setting `name`."""
        with naming(name):
            read = read_text(self.field, value) if isinstance(value, str) else value
        self.owner.check_value(self.field, read, key=name)
        return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """All settings of one command."""

    command: str
    sections: Mapping[str, str]
    """The sections of its file, with their titles."""
    settings: Mapping[str, Setting]
    """The settings by key, in the order of their declaration."""

    @classmethod
    def of(cls, command: str, sections: Mapping[str, tuple[str, type[Settings]]]) -> "Catalogue":
        """The catalogue of these structs, by the file's sections."""
        settings = {
            setting.key: setting
            for section, (_, owner) in sections.items()
            for setting in _settings_of(owner, f"{section}.")
        }
        assert len({setting.flag for setting in settings.values()}) == len(settings), "two settings have the same flag"
        titles = {section: title for section, (title, _) in sections.items()}
        return cls(command=command, sections=titles, settings=settings)


def _settings_of(owner: type[Settings], path: str, section: str = "") -> Iterator[Setting]:
    texts = texts_of(owner)
    first: str | None = None
    for field in msgspec.structs.fields(owner):
        name = field.encode_name
        inner = _section_of(field.type)
        if inner is not None:
            yield from _settings_of(inner, f"{path}{name}.", name)
            continue
        is_first = bool(section) and first is None
        first = first or f"{path}{name}"
        words = [section] if is_first else [section, _without_unit(name)]
        yield Setting(
            key=f"{path}{name}",
            flag="--" + "-".join(filter(None, words)).replace("_", "-"),
            owner=owner,
            field=field,
            text=texts.get(field.name, ""),
            turned_on_by=first if section and not is_first else None,
            turns_on_section=is_first,
        )


def _section_of(kind: Any) -> type[Settings] | None:
    """The struct of a field that is one; else None."""
    members = [one for one in get_args(kind) or (kind,) if isinstance(one, type) and issubclass(one, Settings)]
    return members[0] if members and get_origin(kind) not in (tuple, Literal) else None


def _without_unit(name: str) -> str:
    return next((name.removesuffix(unit) for unit in _UNITS if name.endswith(unit)), name)


def _says_secret(kind: inspect.Metadata) -> bool:
    return bool((kind.extra or {}).get("is_secret"))


SERVE_SECTIONS: Mapping[str, tuple[str, type[Settings]]] = MappingProxyType(
    {
        "engine": ("Engine", EngineConfig),
        "server": ("Server", ServerConfig),
        "offload": ("Below the device: memory and tiers", OffloadConfig),
    }
)
SERVE = Catalogue.of("octavo serve", SERVE_SECTIONS)
ROUTE = Catalogue.of("octavo route", {"router": ("Router", RouterConfig)})
EPP = Catalogue.of("octavo epp", {"picker": ("Endpoint picker", PickerConfig)})
SELECT = Catalogue.of("octavo select", {"select": ("Selection service", SelectionConfig)})
CATALOGUES = (SERVE, ROUTE, EPP, SELECT)
