"""`WriteBehind`: one write on a thread of its own, while the writer fills the other buffer."""

import threading
from queue import SimpleQueue

from octavo.tiers.disk.io import DiskIO, as_disk_error, write_all
from octavo.tiers.disk.operations import Ticket


class WriteBehind:
    """At most one write is under way: `start`, then `wait`, in turns, on the writer's thread."""

    def __init__(self, io: DiskIO) -> None:
        self.ticket = Ticket()
        self._io = io
        self._writes: SimpleQueue[tuple[int, memoryview, int] | None] = SimpleQueue()
        self._results: SimpleQueue[OSError | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="octavo-disk-write", daemon=True)
        self._thread.start()

    def start(self, fd: int, data: memoryview, offset: int) -> None:
        """The data must stay as it is until `wait` returns."""
        self._writes.put((fd, data, offset))

    def wait(self) -> OSError | None:
        """The error of the write; None if it worked."""
        return self._results.get()

    def stop(self) -> None:
        self._writes.put(None)

    def _run(self) -> None:
        while (write := self._writes.get()) is not None:
            try:
                with self.ticket:
                    write_all(self._io, *write)
            except Exception as error:  # noqa: BLE001 - the thread that waits must hear of it
                self._results.put(as_disk_error(error))
            else:
                self._results.put(None)
