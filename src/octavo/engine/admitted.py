"""Model families that `make families` compared with plain Hugging Face, and the results, as data.

    {"served": {"mistral": {"config": "MistralConfig", "own": {...}, "also": [{"sliding_window": null}]}},
     "refused": {"bloom": "..."}}

`own` is what the tiny model that was compared sets beside the common shape. Each of `also` makes one more model.
`parts` are what a model has beside its text model, where that cannot be loaded alone.
"""

from importlib.resources import files
from typing import Any

import msgspec

FILE = "admitted.json"


class AdmittedFamily(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One family, and the tiny models that answered as they do in plain Hugging Face."""

    config: str
    """The class of its config in transformers."""
    own: dict[str, Any]
    also: list[dict[str, Any]] = []
    parts: dict[str, Any] | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """By the `model_type` of what is loaded: the families that are served, and the reasons why others are not."""

    served: dict[str, AdmittedFamily] = {}
    refused: dict[str, str] = {}


def read_comparison() -> Comparison:
    """The comparison that ships with the package."""
    return msgspec.json.decode(files(__package__).joinpath(FILE).read_bytes(), type=Comparison)


COMPARISON = read_comparison()
