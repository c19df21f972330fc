"""Packages of one module with an entry point, installed as pip would: real files on `sys.path`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path


class PluginFolder:
    """A folder like `site-packages`."""

    def __init__(self, folder: Path, group: str) -> None:
        self._folder = folder
        self._group = group
        self.installed: list[str] = []

    def install(self, name: str, source: str, target: str = "", *, package: str | None = None) -> str:
        """Writes a package whose entry point `name` is `target` of its module, and returns the module's name."""
        module = f"octavo_test_{package or name}"
        (self._folder / f"{module}.py").write_text(source)
        info = self._folder / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{self._group}]\n{name} = {module}{target}\n")
        self.installed.append(module)
        invalidate_caches()  # the folder may have been listed within this tick of the file system's clock
        return module


@contextmanager
def plugin_folder(folder: Path, group: str) -> Iterator[PluginFolder]:
    """On `sys.path` while the block runs."""
    sys.path.insert(0, str(folder))
    plugins = PluginFolder(folder, group)
    try:
        yield plugins
    finally:
        sys.path.remove(str(folder))
        for module in plugins.installed:
            sys.modules.pop(module, None)
        invalidate_caches()
