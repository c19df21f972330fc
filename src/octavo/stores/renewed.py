"""`Renewed`: a connection to a store that is opened anew once ca_file has other certificates."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from octavo.errors import InputError


class Renewed:
    """What a client asks, opened with the certificates that ca_file had at that time."""

    def __init__(self, ca_file: Path | None, open_it: Callable[[], Any]) -> None:
        """`open_it` raises InputError for a file without certificates, and so does this."""
        self._ca_file = ca_file
        self._open_it = open_it
        self._certificates = self._read()
        self.current = open_it()

    def renew(self) -> Any:
        """What is open now, opened anew if need be. A file that is just being replaced is left for the next time."""
        certificates = self._read()
        if certificates not in (b"", self._certificates):
            with suppress(InputError):
                self.current = self._open_it()
                self._certificates = certificates
        return self.current

    def _read(self) -> bytes:
        with suppress(OSError):
            return self._ca_file.read_bytes() if self._ca_file is not None else b""
        return b""
