"""`Syncs`: when what was accepted is made durable; on the engine's thread.

A sync is due after a number of bytes, after a number of seconds, and when a caller waits for it. One without bytes
only looks whether the folder is still there, so that a tier without stores notices it too.
"""

from octavo.tiers.disk.operations import Sync
from octavo.tiers.disk.writer import Writer

_LOOK_S = 2.0
"""Between two looks at the folder."""


class Syncs:
    """Orders one sync at a time; what is accepted meanwhile waits for the next one."""

    def __init__(self, writer: Writer, *, most_bytes: int, most_s: float) -> None:
        self._writer = writer
        self._most_bytes = most_bytes
        self._most_s = most_s
        self._num_bytes = 0
        self._since: float | None = None
        self._looked_at: float | None = None
        self._under_way: Sync | None = None
        self._flush: Sync | None = None

    def accept(self, num_bytes: int) -> None:
        """A store or a reset (no bytes) was ordered. The flush that is under way does not cover it."""
        self._flush = None
        self._num_bytes += num_bytes
        if self._num_bytes >= self._most_bytes:
            self._order()

    def poll(self, now: float, *, is_looking: bool) -> None:
        """Orders a sync that is due. `is_looking`: also one without bytes, to look at the folder."""
        if self._looked_at is None or not is_looking:
            self._looked_at = now
        elif now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            self._order()
        if not self._num_bytes:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= self._most_s:
            self._order()

    def flush(self, timeout_s: float) -> bool:
        """Blocks until everything accepted is durable; False if some of it was lost or time is up before. After a
        timeout, the next call waits for the same order if nothing was accepted since, so orders do not pile up on a
        disk that hangs."""
        if self._flush is None:
            self._flush = Sync(is_flush=True)
            self._writer.submit(self._flush)
        order = self._flush
        if not order.is_done.wait(timeout_s):
            return False
        self._flush = None
        return order.is_durable

    def _order(self) -> None:
        if self._under_way is None or self._under_way.is_done.is_set():
            self._under_way = Sync()
            self._writer.submit(self._under_way)
            self._num_bytes, self._since = 0, None
