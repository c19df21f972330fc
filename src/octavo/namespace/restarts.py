"""Tells whose a namespace is: each engine leaves the parts of its identity beside a tier's chunks. An engine with
another namespace logs which parts differ, and so why its start is cold; `octavo cache ls` shows them.

    namespace-<hex>.json      {"dtype": "bfloat16", "model_digest": "9f86d081884c7d65", ..., "model": "qwen3-next"}

A store that engines share gets the parts that may be seen by all who can read there: `pack_description`.
"""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from octavo.errors import MALFORMED
from octavo.namespace.identity import CacheIdentity, encode, identity_fields
from octavo.replacing import replacing

LABELS = ("model", "plan")
"""Names by which a person knows an engine. They are not part of the identity, and never a reason for a cold start."""
NAMESPACE_PART = "namespace"
"""The digest itself, where a description can be read only by those who have a key."""
PARTIAL = "partial"
"""Where a description tells some parts only, as that of chunks that were copied from a shared store."""
_FOR_ALL = (
    *LABELS,
    NAMESPACE_PART,
    "dtype",
    "cache_dtype",
    "quantization",
    "codec",
    "format_version",
    "blocks_per_chunk",
    "model_digest",
    "models",
    "attention_backend",
    "computed_on",
    "vllm",
)
"""The parts that tell namespaces apart and are no secret of a machine: no seed, no folder."""
_NAME = re.compile(r"namespace-([0-9a-f]{32})\.json")
_LONGEST_PART = 60
"""The most characters of a part; a longer one is written as a digest."""
_LONGEST_LABEL = 200
_MOST_PARTS = 64
_MOST_FILES = 16
_MOST_BYTES = 64 << 10
_MOST_TOLD = 4


def describe_identity(identity: CacheIdentity, *, model: str = "") -> dict[str, str]:
    """The parts of an identity, and the labels: the model's name, and its layers by kind."""
    layers = ", ".join(f"{len(group.layer_names)} {group.kind}" for group in identity.config.groups)
    return {name: brief(value) for name, value in identity_fields(identity).items()} | {"model": model, "plan": layers}


def brief(value: object) -> str:
    """A part of an identity in few characters: as it is, or as a digest."""
    is_plain = isinstance(value, str | int) and len(str(value)) <= _LONGEST_PART
    return str(value) if is_plain else sha256(encode(value)).hexdigest()[:16]


def why_cold(folder: Path, namespace: bytes, parts: Mapping[str, str]) -> str:
    """One line that names the parts in which this identity differs from the last one in the folder; empty if this one
    was there before, or none was. Leaves the parts there for the next engine. Ignores a folder that cannot be read or
    written."""
    own = folder / description_name(namespace.hex())
    try:
        known = sorted(folder.glob("namespace-*.json"), key=lambda path: path.lstat().st_mtime_ns)
        before = _read(known[-1]) if known and own not in known else None
        _write(own, parts)
        for path in [path for path in known if path != own][: -_MOST_FILES + 1]:
            path.unlink()
    except OSError:
        return ""
    return "" if before is None else _tell(_plain(before), dict(parts))


def keep_description(folder: Path, namespace: bytes, parts: Mapping[str, str]) -> None:
    """Leaves the parts in the folder again, if they are gone. Ignores a folder that cannot be written."""
    path = folder / description_name(namespace.hex())
    with suppress(OSError):
        if not path.is_symlink() and not path.exists():
            _write(path, parts)


def description_name(namespace: str) -> str:
    """The file that describes a namespace, given in hexadecimal digits."""
    return f"namespace-{namespace}.json"


def described_namespace(file_name: str) -> str | None:
    """The namespace that a file describes; None for files that describe none."""
    found = _NAME.fullmatch(file_name)
    return None if found is None else found[1]


def read_description(folder: Path, namespace: str) -> dict[str, str]:
    """An engine's description of a namespace: short printable text, whatever the file holds; empty without a file."""
    try:
        return _plain(_read(folder / description_name(namespace)))
    except OSError:
        return {}


def pack_description(parts: Mapping[str, str]) -> bytes:
    """The parts for a place where others read, of bounded size. Of a model's folder only the last name is told."""
    told = {name: parts[name][:_LONGEST_LABEL] for name in _FOR_ALL if name in parts}
    if "model" in told:
        told["model"] = ", ".join(map(_without_folder, parts["model"].split(", ")))[:_LONGEST_LABEL]
    return json.dumps(told).encode()


def parse_description(data: bytes) -> dict[str, str]:
    """What `pack_description` packed, as short printable text; whatever else the bytes are, it is that or empty."""
    return _plain(_parse(data))


def _without_folder(model: str) -> str:
    """A hub's name has one slash; "@" begins a revision."""
    name, at, revision = model.partition("@")
    is_folder = name.startswith(("/", ".", "~")) or name.count("/") > 1
    return (name.rstrip("/").rpartition("/")[2] if is_folder else name) + at + revision


def _plain(parts: Mapping[str, object]) -> dict[str, str]:
    return {
        name: _printable(value)
        for name, value in list(parts.items())[:_MOST_PARTS]
        if isinstance(value, str) and name.isidentifier() and name.isascii() and len(name) <= _LONGEST_PART
    }


def _printable(text: str) -> str:
    shown = "".join(char if char.isprintable() else "?" for char in text[:_LONGEST_LABEL])
    return shown if len(text) <= _LONGEST_LABEL else f"{shown}..."


def _tell(before: dict[str, str], parts: dict[str, str]) -> str:
    """Another version of Octavo may tell other parts: those of either count."""
    known = before.keys() & parts.keys() if PARTIAL in before else before.keys() | parts.keys()
    names = [one for one in parts | before if one in known and one not in LABELS and before.get(one) != parts.get(one)]
    differ = [f"{name} was {_shown(before, name)} and is {_shown(parts, name)}" for name in names[:_MOST_TOLD]]
    more = [f"{len(names) - _MOST_TOLD} more parts differ"] if len(names) > _MOST_TOLD else []
    return f"a cold start, as what is there was kept for another identity: {'; '.join(differ + more) or 'nothing told'}"


def _shown(parts: Mapping[str, str], name: str) -> str:
    text = repr(parts[name]) if name in parts else "absent"
    return text if len(text) <= _LONGEST_PART + 2 else f"{text[:_LONGEST_PART]}..."


def _read(path: Path) -> dict[str, object]:
    """The file's content; empty if it is not as `_write` writes it: others may write to the folder."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as stream:
        return _parse(stream.read(_MOST_BYTES))


def _parse(data: bytes) -> dict[str, object]:
    try:
        parts = json.loads(data)
    except MALFORMED:
        return {}
    return parts if isinstance(parts, dict) else {}


def _write(path: Path, parts: Mapping[str, str]) -> None:
    with replacing(path) as file:
        file.write(json.dumps(dict(parts)).encode())
