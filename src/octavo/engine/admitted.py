"""Families that `make families` has compared with plain Hugging Face, and what it found, as data.

    {"served": {"mistral": {"config": "MistralConfig", "own": {...}, "also": [{"sliding_window": null}]}},
     "refused": {"bloom": "..."}}

`own` makes the tiny model that was compared, beside the common shape; each of `also` another one of the same family.
"""

from importlib.resources import files
from typing import Any

import msgspec

FILE = "admitted.json"


class AdmittedFamily(msgspec.Struct, frozen=True, kw_only=True):
    """One family, and the tiny models that answered as they do in plain Hugging Face."""

    config: str
    """Of transformers."""
    own: dict[str, Any]
    also: list[dict[str, Any]] = []


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """By `model_type`: what is served, and why others are not."""

    served: dict[str, AdmittedFamily] = {}
    refused: dict[str, str] = {}


def read_comparison() -> Comparison:
    """What ships with the package."""
    return msgspec.json.decode(files(__package__).joinpath(FILE).read_bytes(), type=Comparison)


COMPARISON = read_comparison()
