"""`SharedContext`: the ZMQ context of several subscribers.

Each context has two threads and some files of its own, and libzmq ends the process where it can start no thread.
"""

import threading
from typing import TypeAlias
from weakref import WeakSet

import zmq

from octavo.events.sockets import Context, Socket, check_files, new_context

_Sockets: TypeAlias = WeakSet[Socket]


class Lease:
    """The part of a context that one subscriber uses."""

    def __init__(self, owner: "SharedContext", context: Context) -> None:
        self._owner = owner
        self._context = context
        self._sockets: _Sockets = WeakSet()

    def socket(self, kind: int) -> Socket:
        """A new socket, which lives until the lease ends at the latest."""
        socket = self._context.socket(kind)
        self._sockets.add(socket)
        return socket

    def close(self) -> None:
        """Closes its sockets, and the context with the last lease."""
        for socket in list(self._sockets):
            socket.close(linger=0)
        self._owner._end_lease()  # noqa: SLF001 - its own


class SharedContext:
    """A context that is open while anybody has a lease of it. Any thread may ask for one."""

    def __init__(self, *, has_many_sockets: bool = False) -> None:
        """`has_many_sockets`: more than a thousand."""
        self._has_many_sockets = has_many_sockets
        self._lock = threading.Lock()
        self._context: Context | None = None
        self._num_leases = 0

    def lease(self) -> Lease:
        """OSError if the process may open too few files."""
        with self._lock:
            check_files()
            if self._context is None:
                self._context = new_context()
                if self._has_many_sockets:
                    self._context.set(zmq.MAX_SOCKETS, int(self._context.get(zmq.SOCKET_LIMIT)))
            self._num_leases += 1
            return Lease(self, self._context)

    def _end_lease(self) -> None:
        with self._lock:
            self._num_leases -= 1
            if not self._num_leases and self._context is not None:
                self._context.destroy(linger=0)
                self._context = None
