"""`Renewed`: a connection to a store that is opened anew once the files of its certificates are others."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from octavo.errors import InputError


class Renewed:
    """What a client asks, opened with the certificates that its files had at that time."""

    def __init__(self, files: Sequence[Path], open_it: Callable[[], Any]) -> None:
        """`open_it` raises InputError for a file without certificates, and so does this."""
        self._files = files
        self._open_it = open_it
        self._certificates = self._read()
        self.current = open_it()

    def renew(self) -> Any:
        """What is open now, opened anew if need be. Files that are just being replaced are left for the next time."""
        certificates = self._read()
        if certificates is not None and certificates != self._certificates:
            with suppress(InputError):
                self.current = self._open_it()
                self._certificates = certificates
        return self.current

    def _read(self) -> list[bytes] | None:
        """None while one of them is empty, or cannot be read."""
        with suppress(OSError):
            read = [path.read_bytes() for path in self._files]
            return read if all(read) else None
        return None
