"""`Wakeup`: any thread wakes one that waits in a poll."""

import contextlib
import socket


class Wakeup:
    """A file descriptor that becomes readable. Several calls of `set` before one `clear` count as one."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        return self._reader.fileno()

    def set(self) -> None:
        """Makes the descriptor readable. After `close` it does nothing."""
        with contextlib.suppress(OSError):  # full: it is readable already
            self._writer.send(b"\0")

    def clear(self) -> None:
        with contextlib.suppress(OSError):
            while self._reader.recv(4096):
                pass

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
