"""`digest_weights`: the content of a model folder's weights and configuration, read once and remembered.

The memory is a small JSON file: path, stamp and digest of each file that was read. It only saves reading: a file with
another stamp is read again, and a damaged memory counts as empty. A file that changed a moment before it was read is
not remembered, since a change a moment later might leave its stamp as it is: some file systems count whole seconds.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import MALFORMED, InputError, WeightsChangedError
from octavo.namespace.identity import encode
from octavo.replacing import replacing

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_CONFIGURATION = (".json", ".py")
"""The ends of names of configuration files: the config, quantisation, the index of tensors, a model's own code."""
_MEMORY_NAME = "weights-digests.json"
_MEMORY_VERSION = 2
_MOST_REMEMBERED = 10_000
_PIECE_BYTES = 16 << 20
_LONGEST_MOMENT_NS = 3_000_000_000
"""Longer than the two seconds by which FAT counts."""

Stamp = tuple[int, int, int, int, int]
"""A file's size, time of modification, time of change, inode and device. Nobody can set the time of change, so it shows
even a change that keeps size and time of modification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightStamps:
    """The files of a model folder at one moment."""

    files: Mapping[str, Stamp]
    changed_ns: int
    """When a file, a folder or a link on the way to them last changed, in ns since the epoch."""


def stamp_weights(folder: Path | str) -> WeightStamps:
    """The present stamps. Take them before the weights are loaded."""
    root = Path(folder).absolute()
    files = _model_files(root)
    try:
        links = [path.lstat() for path in (*files, root, *root.parents) if path.is_symlink()]
        folders = [path.stat() for path in {root, *(file.parent for file in files)}]
        stamps = {str(file.relative_to(root)): _stamp(file) for file in files}
    except OSError as error:
        raise _unreadable(root, error) from error
    changed = [status.st_ctime_ns for status in (*links, *folders)] + [stamp[2] for stamp in stamps.values()]
    return WeightStamps(files=stamps, changed_ns=max(changed))


def digest_weights(
    folder: Path | str,
    cache_dir: Path | str | None = None,
    *,
    loaded: WeightStamps | None = None,
    overrides: object = None,
) -> bytes:
    """32 bytes for the content of a model's weights and its resolved config.

    `loaded` holds the stamps from before loading: WeightsChangedError is raised if they differ now, as it is unknown
    then what was loaded. `overrides` are the engine's changes of the config (RoPE scaling, the longest context): any
    value that `octavo.namespace.encode` takes. With a `cache_dir`, unchanged files are not read again.
    """
    root = Path(folder)
    files = _model_files(root)
    memory = _Memory(Path(cache_dir) / _MEMORY_NAME if cache_dir is not None else None)
    digests = {str(file.relative_to(root)): memory.digest(file) for file in files}
    if loaded is not None and stamp_weights(root).files != loaded.files:
        raise WeightsChangedError(
            f"{root}: files have changed since the model was loaded, so nobody knows which of them it has: start again"
        )
    memory.save()
    return hashlib.sha256(encode(["octavo-weights-1", digests, overrides])).digest()


def _model_files(root: Path) -> list[Path]:
    try:
        files = sorted(_walk(root))
    except OSError as error:
        raise _unreadable(root, error) from error
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


def _stamp(file: Path) -> Stamp:
    status = file.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: cannot be read: {error.strerror}")


class _Memory:
    """Stamp and digest of each file, by its resolved path."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = _read_known(path)
        self._is_new = False

    def digest(self, file: Path) -> str:
        now_ns = time.time_ns()
        try:
            path, stamp = str(file.resolve()), _stamp(file)
            known = self._known.get(path)
            if known is not None and known[0] == stamp:
                return known[1]
            digest = _digest_file(file)
            is_settled = stamp[2] < now_ns - _LONGEST_MOMENT_NS
            if is_settled and _stamp(file) == stamp:  # else it changed while it was read
                self._known.pop(path, None)
                self._known[path] = stamp, digest
                self._is_new = True
        except OSError as error:
            raise _unreadable(file, error) from error
        return digest

    def save(self) -> None:
        """Writes the whole file or nothing; if it cannot, the next start reads the weights again."""
        if self._path is None or not self._is_new:
            return
        files = dict(list(self._known.items())[-_MOST_REMEMBERED:])
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replacing(self._path) as memory:
                memory.write(json.dumps({"version": _MEMORY_VERSION, "files": files}).encode())


def _read_known(path: Path | None) -> dict[str, tuple[Stamp, str]]:
    if path is None:
        return {}
    try:
        memory = json.loads(path.read_bytes())
        if memory["version"] != _MEMORY_VERSION:
            return {}
        known = {file: _read_entry(entry) for file, entry in memory["files"].items()}
    except (OSError, *MALFORMED, KeyError, TypeError, AttributeError):
        return {}
    return {file: entry for file, entry in known.items() if entry is not None}


def _read_entry(entry: object) -> tuple[Stamp, str] | None:
    match entry:
        case [[int(size), int(modified), int(changed), int(inode), int(device)], str(digest)]:
            if len(digest) == 2 * hashlib.sha256().digest_size:
                return (size, modified, changed, inode, device), digest
    return None


def _digest_file(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb", buffering=0) as stream:
        while piece := stream.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
