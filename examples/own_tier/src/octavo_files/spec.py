"""From `{type: files, path: FOLDER, size: 200GiB}` to an open tier."""

import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from octavo.errors import InputError
from octavo.tiers import OffloadingSpec, TierContext
from octavo.units import parse_bytes
from octavo_files.tier import FilesTier, cost_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSpec(OffloadingSpec):
    """A folder, and how much it may hold. Engines of different models may share the folder: each has a part of its
    own, named by its namespace, and a budget of its own."""

    name: ClassVar[str] = "files"

    path: Path
    size_bytes: int

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "FilesSpec":
        if config.keys() != {"path", "size"}:
            raise InputError(
                f"a files tier needs path and size, and nothing else, not {', '.join(config) or 'nothing'}"
            )
        return cls(path=Path(config["path"]), size_bytes=parse_bytes(str(config["size"])))

    def build(self, context: TierContext) -> FilesTier:
        needed = cost_of(context.max_chunk_bytes)
        if self.size_bytes < needed:
            raise InputError(f"size = {self.size_bytes} bytes of a files tier cannot hold one chunk: give it {needed}")
        folder = self.path / context.namespace.hex()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise InputError(f"files tier: {folder} cannot be used ({error.strerror}); give another path") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # two processes would each fill the whole budget
        except OSError as error:
            os.close(lock)
            raise InputError(f"files tier: {folder} is in use by another process; give each its own path") from error
        return FilesTier(folder, self.size_bytes, lock)
