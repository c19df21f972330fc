"""A person's own list of layers: the YAML file behind `octavo plan --layers`.

    max_model_len: 131072
    layers:
      - {kind: full_attention, count: 12, num_kv_heads: 8, head_size: 128}
      - {kind: mamba, count: 36, shapes: [[3, 8192], [32, 128, 128]], dtypes: [bfloat16, float32]}

An entry stands for `count` layers. Its `kind` is that of a registered spec, or the class's name, so specs that a
plug-in registered work too; its other keys are the fields of that class.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from octavo.errors import InputError
from octavo.planning.models.config_view import MAX_COUNT
from octavo.planning.models.model_layers import MAX_LAYERS, Layers, ModelLayers
from octavo.settings import read_yaml_file, shown
from octavo.specs import CacheDType, KVCacheSpec, KVCacheSpecRegistry

_TOP_KEYS = ("architecture", "layers", "max_encoder_tokens", "max_model_len")


def read_layers_file(path: Path | str, *, block_size: int = 16) -> ModelLayers:
    """The layers that the file lists. `block_size` is for entries that give none."""
    path = Path(path)
    document = read_yaml_file(path, holds="a list of layers")
    unknown = [key for key in document if key not in _TOP_KEYS]
    if unknown:
        raise InputError(f"{path}: unknown key {shown(unknown[0])}; known are {', '.join(_TOP_KEYS)}")
    entries = document.get("layers")
    if not isinstance(entries, list) or not entries:
        raise InputError(f"{path}: layers must be a list of at least one entry, not {shown(entries)}")
    layers: Layers = {}
    for number, entry in enumerate(entries, start=1):
        _add_entry(layers, f"{path}: entry {number}", entry, block_size)
    architecture = document.get("architecture", path.stem)
    if not isinstance(architecture, str) or not architecture.isprintable():
        raise InputError(f"{path}: architecture must be text, not {shown(architecture)}")
    max_model_len = document.get("max_model_len")
    return ModelLayers(
        architecture=architecture,
        layers=layers,
        max_model_len=None if max_model_len is None else _count(f"{path}: max_model_len", max_model_len),
        max_encoder_tokens=_count(f"{path}: max_encoder_tokens", document.get("max_encoder_tokens", 0), minimum=0),
    )


def _add_entry(layers: Layers, where: str, entry: object, block_size: int) -> None:
    """Adds the layers of one entry; they share one spec."""
    if not isinstance(entry, dict):
        raise InputError(f"{where}: must be keys and values, such as {{kind: full_attention, ...}}, not {shown(entry)}")
    count = _count(f"{where}: count", entry.get("count", 1))
    if len(layers) + count > MAX_LAYERS:
        raise InputError(f"{where}: count = {count} makes more than {MAX_LAYERS} layers")
    spec_class = _find_class(where, entry.get("kind"))
    values = {key: value for key, value in entry.items() if key not in ("kind", "count")}
    spec = _built(where, spec_class, {"block_size": block_size, **values})
    for _ in range(count):
        layers[f"layers.{len(layers)}.{spec.kind}"] = spec


def _find_class(where: str, kind: object) -> type[KVCacheSpec]:
    classes = KVCacheSpecRegistry.registered_specs()
    for names in ([c.kind for c in classes], [c.__name__ for c in classes]):
        if kind in names:
            return classes[names.index(kind)]
    known = ", ".join(dict.fromkeys(c.kind for c in classes))
    if kind is None:
        raise InputError(f"{where}: kind is missing; known are {known}")
    raise InputError(f"{where}: unknown kind {shown(kind)}; known are {known}, or the name of a registered class")


def _built(where: str, spec_class: type[KVCacheSpec], values: Mapping[object, object]) -> KVCacheSpec:
    known: dict[str, Field[Any]] = {f.name: f for f in fields(spec_class) if f.init}
    unknown = [key for key in values if key not in known]
    if unknown:
        raise InputError(f"{where}: {spec_class.__name__} has no field {shown(unknown[0])}; it has {', '.join(known)}")
    for name, field in known.items():
        if field.default is MISSING and field.default_factory is MISSING and name not in values:
            raise InputError(f"{where}: {spec_class.__name__} needs {name}")
    hints = get_type_hints(spec_class)
    converted: dict[str, Any] = {
        name: _converted(f"{where}: {name}", hints[name], values[name]) for name in known if name in values
    }
    try:
        return spec_class(**converted)
    except (TypeError, ValueError) as cause:  # SpecError is a ValueError; the others come from a plug-in's class
        raise InputError(f"{where}: {cause}") from cause


def _converted(where: str, hint: Any, value: object) -> object:
    """The value as a field of type `hint` takes it. A type that YAML cannot write is checked by the class itself."""
    arguments = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _converted(where, next(a for a in arguments if a is not type(None)), value)
    if get_origin(hint) is tuple and arguments[1:] == (Ellipsis,):
        if not isinstance(value, list):
            raise InputError(f"{where} must be a list, not {shown(value)}")
        return tuple(_converted(f"{where}[{i}]", arguments[0], item) for i, item in enumerate(value))
    if hint is CacheDType:
        return _dtype(where, value)
    if hint is int:
        return _count(where, value, minimum=0)
    if hint in (bool, str, float) and not isinstance(value, (int, float) if hint is float else hint):
        raise InputError(f"{where} must be of type {hint.__name__}, not {shown(value)}")
    return value


def _dtype(where: str, value: object) -> CacheDType:
    if not isinstance(value, str):
        raise InputError(f"{where} must name a type such as bfloat16, not {shown(value)}")
    try:
        return CacheDType.parse(value)
    except ValueError as cause:
        raise InputError(f"{where}: {cause}") from cause


def _count(where: str, value: object, *, minimum: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= MAX_COUNT:
        raise InputError(f"{where} must be a whole number from {minimum} to {MAX_COUNT}, not {shown(value)}")
    return value
