"""`Mount`: whether a folder's file system is mounted.

While it is not, the folder's path leads to the file system below, usually that of /, which nobody has given for what is
kept in the folder.
"""

from collections.abc import Callable
from pathlib import Path


def device_of(path: Path) -> int:
    """The number of the file system that a path is on."""
    return path.stat().st_dev


class Mount:
    """The file system of a folder that is there now."""

    def __init__(self, folder: Path, device_of: Callable[[Path], int] = device_of) -> None:
        self._folder = folder
        self._device_of = device_of
        devices = map(device_of, _and_parents(folder))
        own = next(devices)
        self._below = next((device for device in devices if device != own), None)
        """The file system below; None if the folder is on that of /."""

    @property
    def is_there(self) -> bool:
        """False while the path leads to the file system below. The folder itself may be gone."""
        if self._below is None:
            return True
        there = next(path for path in _and_parents(self._folder) if path.exists())
        return self._device_of(there) != self._below


def _and_parents(path: Path) -> list[Path]:
    real = path.resolve()
    return [real, *real.parents]
