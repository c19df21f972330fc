"""The values in force, and their sources: flags before environment before file before defaults."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from octavo.cli.settings.setting import CATALOGUES, EPP, ROUTE, SELECT, SERVE, Catalogue, Setting
from octavo.engine import EngineConfig, check_together
from octavo.errors import InputError
from octavo.gateway import PickerConfig
from octavo.offload import OffloadConfig
from octavo.policies import POLICIES
from octavo.router import RouterConfig, SelectionConfig
from octavo.server import ServerConfig
from octavo.settings import Written, read_yaml_file, shown, unknown_name, without_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value that a person gave."""

    setting: Setting
    value: object
    source: str
    """The name of its source: a flag, a variable, or a file and a key."""


GivenValues = dict[str, Given]
"""Values by the setting's key."""


def gather_settings(
    catalogue: Catalogue, flags: Mapping[str, object], environment: Mapping[str, str], file: Path | None
) -> GivenValues:
    """The values in force, each checked. `flags` are by key; None is a flag that was not given."""
    given: GivenValues = {}
    if file is not None:
        given |= {one.setting.key: one for one in _read_settings_file(file, catalogue)}
    for setting in catalogue.settings.values():
        if (text := environment.get(setting.variable)) is not None:
            given[setting.key] = _checked(setting, text, setting.variable)
    for key, value in flags.items():
        if value is not None:
            setting = catalogue.settings[key]
            given[key] = _checked(setting, value, setting.flag)
    for one in given.values():
        on = one.setting.turned_on_by
        if on is not None and on not in given:
            turns_on = catalogue.settings[on]
            raise InputError(f"{one.source} needs {turns_on.flag} ({turns_on.variable}, {on} in a file)")
    return given


def catalogue_of(file: Path) -> Catalogue:
    """The catalogue of the command that a file is for, by its sections, or what these may be meant to be; that of
    `octavo serve` if none is known."""
    sections = _read_sections(file).keys()
    known = {section: one for one in CATALOGUES for section in one.sections}
    meant = [near for section in sections for near in get_close_matches(str(section), known, n=1)]
    return next((known[section] for section in known if section in sections), known[meant[0]] if meant else SERVE)


def _read_sections(file: Path) -> Mapping[object, object]:
    return read_yaml_file(file, holds="settings, by section", as_written=True)


def _read_settings_file(file: Path, catalogue: Catalogue) -> Iterator[Given]:
    """The values in a file. Raises InputError that names an unknown key or a wrong value."""
    for name, section in _read_sections(file).items():
        if name not in catalogue.sections:
            raise InputError(f"{file}: {_wrong_section(str(name), catalogue)}")
        yield from _read_section(file, str(name), section, catalogue)


def _wrong_section(name: str, catalogue: Catalogue) -> str:
    for section in catalogue.sections:
        if _keys_below(f"{section}.{name}", catalogue) or f"{section}.{name}" in catalogue.settings:
            return f"{name} is a setting of {section}: write it below {section}, such as {{{section}: {{{name}: ...}}}}"
    for other in CATALOGUES:
        if name in other.sections:
            return f"{name} is a section of {other.command}: leave it out for {catalogue.command}"
    return unknown_name("section", name, list(catalogue.sections))


def _read_section(file: Path, path: str, section: object, catalogue: Catalogue) -> Iterator[Given]:
    if section is None:  # a section without keys
        return
    if not isinstance(section, dict):
        raise InputError(f"{file}: {path} must be keys and values, not {shown(without_texts(section))}")
    known = list(dict.fromkeys(key.removeprefix(f"{path}.").partition(".")[0] for key in _keys_below(path, catalogue)))
    for name, value in section.items():
        key = f"{path}.{name}"
        if name not in known:
            raise InputError(f"{file}: {path}: {unknown_name('setting', name, known)}")
        if key not in catalogue.settings:
            yield from _read_section(file, key, value, catalogue)
        elif value is not None:
            setting = catalogue.settings[key]
            yield _checked(setting, _as_a_flag(setting, value), f"{file}: {key}")


def _as_a_flag(setting: Setting, value: object) -> object:
    """What stands in a file, so that it means what it would mean as a flag: `hash_seed: 012` is that text, and `16` is
    no size. Within lists and maps, which a flag has in YAML too, values are YAML's."""
    match value:
        case Written():
            return value.text
        case list() if setting.is_repeated:
            return [one.text if isinstance(one, Written) else without_texts(one) for one in value]
        case _:
            return without_texts(value)


def _keys_below(path: str, catalogue: Catalogue) -> list[str]:
    return [key for key in catalogue.settings if key.startswith(f"{path}.")]


def _checked(setting: Setting, value: object, name: str) -> Given:
    return Given(setting=setting, value=setting.check(value, name=name), source=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """The configurations for `octavo serve`."""

    engine: EngineConfig
    server: ServerConfig
    offload: OffloadConfig | None


def settings_from(given: GivenValues, *, folder: Path, model_name: str) -> ServeSettings:
    """The configurations for a model that was found. Raises InputError if values contradict each other."""
    tree = _as_tree(given, SERVE)
    server = {"served_model_name": model_name} | tree["server"]
    settings = ServeSettings(
        engine=EngineConfig.from_mapping(tree["engine"] | {"model": folder}),
        server=ServerConfig.from_mapping(server),
        offload=_offload_from(tree["offload"]),
    )
    check_together(settings.engine, settings.offload)
    return settings


def router_settings_from(given: GivenValues) -> RouterConfig:
    """The configuration of a router. Raises InputError if values contradict each other."""
    return RouterConfig.from_mapping(_as_tree(given, ROUTE)["router"])


def picker_settings_from(given: GivenValues) -> PickerConfig:
    """The configuration of an endpoint picker. Raises InputError if values contradict each other."""
    return PickerConfig.from_mapping(_as_tree(given, EPP)["picker"])


def selection_settings_from(given: GivenValues) -> SelectionConfig:
    """The configuration of a selection service. Raises InputError if values contradict each other."""
    return SelectionConfig.from_mapping(_as_tree(given, SELECT)["select"])


def _offload_from(section: dict[str, Any]) -> OffloadConfig | None:
    """The configuration of offloading; None if none is wanted. The policy must be a known one even then."""
    if section.keys() & {"memory", "disk", "shared", "tiers"}:
        return OffloadConfig.from_mapping(section)
    if "policy" in section:
        POLICIES.find(section["policy"])
    return None


def _as_tree(given: GivenValues, catalogue: Catalogue) -> dict[str, dict[str, Any]]:
    tree: dict[str, dict[str, Any]] = {section: {} for section in catalogue.sections}
    for key, one in given.items():
        *path, name = key.split(".")
        branch: dict[str, Any] = tree
        for step in path:
            branch = branch.setdefault(step, {})
        branch[name] = one.value
    return tree
