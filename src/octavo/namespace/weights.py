"""`digest_weights`: what a model folder's weights and configuration are, by content, read once and remembered.

The memory is a small JSON file: path, size, time of change and inode of each file that was read, and its digest. It
only ever saves reading: a file that differs in any of these is read again, and a damaged memory is no memory.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from octavo.errors import InputError

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_CONFIGURATION = (".json", ".py")
"""All of them: the config, quantisation, the index that says which tensor is where, a model's own code."""
_MEMORY_NAME = "weights-digests.json"
_MEMORY_VERSION = 1
_MOST_REMEMBERED = 10_000
_PIECE_BYTES = 16 << 20


def digest_weights(folder: Path | str, cache_dir: Path | str | None = None, *, overrides: object = None) -> bytes:
    """32 bytes for the content of a model's weights and its resolved config.

    `overrides` is what the engine changed of the config (RoPE scaling, the longest context): anything that
    `octavo.namespace.identity.encode` takes. With a `cache_dir`, files that are as they were are not read again.
    """
    from octavo.namespace.identity import encode  # it is the only thing shared with the namespace

    root = Path(folder)
    files = _model_files(root)
    memory = _Memory(Path(cache_dir) / _MEMORY_NAME if cache_dir is not None else None)
    digests = {str(file.relative_to(root)): memory.digest(file) for file in files}
    memory.save()
    return hashlib.sha256(encode(["octavo-weights-1", digests, overrides])).digest()


def _model_files(root: Path) -> list[Path]:
    try:
        files = sorted(_walk(root))
    except OSError as error:
        raise InputError(f"{root}: cannot be read: {error.strerror}") from error
    if not any(file.suffix in _WEIGHTS for file in files):
        raise InputError(f"{root}: no weights here ({', '.join(_WEIGHTS)}); give a model's folder")
    return files


def _walk(folder: Path) -> Iterator[Path]:
    for entry in os.scandir(folder):
        if entry.is_dir():
            if not entry.name.startswith("."):
                yield from _walk(Path(entry.path))
        elif entry.name.endswith(_WEIGHTS + _CONFIGURATION):
            yield Path(entry.path)


class _Memory:
    """Digests by file, as they were found and as they are now."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = _read_known(path)
        self._is_new = False

    def digest(self, file: Path) -> str:
        try:
            status = file.stat()
            place = str(file.resolve())
            identity = [status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev]
            known = self._known.get(place)
            if known is not None and known[:-1] == identity:
                return str(known[-1])
            digest = _digest_file(file)
            after = file.stat()
        except OSError as error:
            raise InputError(f"{file}: cannot be read: {error.strerror}") from error
        if [after.st_size, after.st_mtime_ns, after.st_ino, after.st_dev] == identity:  # else it changed meanwhile
            self._known.pop(place, None)
            self._known[place] = [*identity, digest]
            self._is_new = True
        return digest

    def save(self) -> None:
        """Whole or not at all; where it cannot be written, the next start reads again."""
        if self._path is None or not self._is_new:
            return
        files = dict(list(self._known.items())[-_MOST_REMEMBERED:])
        temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary.write_text(json.dumps({"version": _MEMORY_VERSION, "files": files}))
            temporary.replace(self._path)


def _read_known(path: Path | None) -> dict[str, list[Any]]:
    if path is None:
        return {}
    try:
        memory = json.loads(path.read_bytes())
        if memory["version"] != _MEMORY_VERSION:
            return {}
        files = memory["files"]
        return {place: entry for place, entry in files.items() if _is_entry(entry)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _is_entry(entry: object) -> bool:
    match entry:
        case [int(), int(), int(), int(), str(digest)]:
            return len(digest) == 2 * hashlib.sha256().digest_size
        case _:
            return False


def _digest_file(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb", buffering=0) as stream:
        while piece := stream.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
