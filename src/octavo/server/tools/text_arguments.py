"""Which arguments of a tool are text: formats that write arguments without JSON write these as they are."""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any] | None
"""The schema of a tool's arguments."""
DEFINITIONS = ("$defs", "definitions")
"""Where a schema keeps what others refer to."""


def find_property(schema: Schema, key: str) -> Mapping[str, Any]:
    """The schema of one argument, a name for it that stands for another followed; empty if nothing is said of it."""
    properties = (schema or {}).get("properties")
    found = properties.get(key) if isinstance(properties, dict) else None
    if not isinstance(found, dict) or schema is None:
        return {}
    parts = str(found.get("$ref", "")).split("/")
    if len(parts) == 3 and parts[0] == "#" and parts[1] in DEFINITIONS:
        group = schema.get(parts[1])
        found = group.get(parts[2]) if isinstance(group, dict) else None
    return found if isinstance(found, dict) else {}


def is_text(schema: Mapping[str, Any]) -> bool:
    """Whether an argument is text and nothing else."""
    fixed = texts_of(schema)
    return bool(fixed) or schema.get("type") == "string"


def texts_of(schema: Mapping[str, Any]) -> list[str]:
    """The texts that an argument may be; empty where any may come, or something else than texts."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and all(isinstance(value, str) for value in values):
        return values
    return []
