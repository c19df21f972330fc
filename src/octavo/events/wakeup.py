"""A wake-up call from any thread to one that waits in a poll."""

import contextlib
import socket


class Wakeup:
    """A file descriptor that becomes readable. Calls that are not answered yet count as one."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        return self._reader.fileno()

    def set(self) -> None:
        """Makes the descriptor readable; nothing happens once it is closed."""
        with contextlib.suppress(OSError):  # full: it is readable already
            self._writer.send(b"\0")

    def clear(self) -> None:
        with contextlib.suppress(OSError):
            while self._reader.recv(4096):
                pass

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
