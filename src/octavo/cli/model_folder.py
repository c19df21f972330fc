"""Finds the model that a person names: by a path, or by a name in the local cache of Hugging Face's hub.

Nothing is downloaded and no package of the hub's is needed. In the cache, `refs/main` holds the name of the newest
snapshot: `models--google--gemma-3-270m/snapshots/NAME/config.json`.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import InputError
from octavo.settings import read_path, with_home

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_MOST_REF_BYTES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A folder with config, weights and tokenizer, and the model's name."""

    folder: Path
    name: str
    tiny: str | None = None
    """The family of the tiny model that `make_tiny` puts there."""

    def make_tiny(self) -> None:
        """Saves the tiny model, if it is one. It loads torch, which takes seconds."""
        if self.tiny is not None:
            from octavo.engine import save_tiny_model

            save_tiny_model(self.tiny, self.folder)


@contextmanager
def open_model(model: str | None, *, tiny: str | None) -> Iterator[FoundModel]:
    """The model to serve: the one that `model` names, or the folder for a tiny one, which is deleted at the end."""
    match model, tiny:
        case str(), None:
            folder = find_model(model)
            if not (folder / "config.json").is_file():
                raise InputError(f"{model} is not a model's folder: {_why_no_model(folder)}")
            yield FoundModel(folder=folder, name=model if is_hub_name(model) else folder.resolve().name)
        case None, str():
            from octavo.engine import TINY_MODELS
            from octavo.host import temporary_folder  # numpy, which `octavo plan` does without

            if tiny not in TINY_MODELS:
                raise InputError(f"--tiny {tiny!r} is not one of {', '.join(sorted(TINY_MODELS))}")
            with temporary_folder("octavo-tiny-") as folder:
                yield FoundModel(folder=folder, name=f"tiny-{tiny}", tiny=tiny)
        case _:
            raise InputError("give a model, such as a folder or a name of the hub, or --tiny FAMILY, one of the two")


def _why_no_model(folder: Path) -> str:
    if folder.is_dir():
        return "it has no config.json"
    if folder.is_file():
        return "it is a file; give the folder that has config.json and *.safetensors"
    return "it is not there; give a folder, or a name of the hub such as google/gemma-3-270m"


def find_model(name: str, *, files: str = "") -> Path:
    """The path itself if it exists or cannot be a name on the hub; else the newest cached snapshot.

    InputError says how to get a model that is not there; `files` are those that are needed, if not all.
    """
    if not is_hub_name(name):
        return read_path(name)
    folder = find_snapshot(name)
    if folder is None:
        command = f"hf download {name} {files}".rstrip()
        raise InputError(f"{name} is neither a path nor a model in {hub_cache()}; get it with: {command}")
    return folder


def is_hub_name(name: str) -> bool:
    """Whether this can be a name on the hub, and no file or folder here has it."""
    is_file_name = name.endswith((".json", ".yaml", ".yml"))
    return _HUB_NAME.fullmatch(name) is not None and not is_file_name and not Path(name).exists()


def find_snapshot(name: str) -> Path | None:
    """The newest cached snapshot of a model, if it has a config."""
    model = hub_cache() / f"models--{name.replace('/', '--')}"
    try:
        with (model / "refs" / "main").open("rb") as ref:
            snapshot = ref.read(_MOST_REF_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    folder = model / "snapshots" / snapshot
    return folder if snapshot and (folder / "config.json").is_file() else None


def hub_cache() -> Path:
    """The folder of the hub's cache, found in the same way as the hub's own tools do."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return with_home(Path(cache)) or Path(cache)
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    return (with_home(home) or home) / "hub"
