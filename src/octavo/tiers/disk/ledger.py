"""The bytes in the directory, as the threads that change them count them: the budget's last word.

The plan keeps within the budget too; the ledger holds even where a file could not be deleted or cut as planned.
"""

import errno
from threading import Lock

from octavo.tiers.disk.layout import ALIGNMENT

RESERVED_BYTES = 4 * ALIGNMENT
"""The bytes of the lock, a reset's marker, its temporary file and a probe, which count as if they were always there."""


class Ledger:
    """The bytes of each segment's file, by number. Call `set_file` before a file grows and after it shrank."""

    def __init__(self, budget_bytes: int, *, other_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._files: dict[int, int] = {}
        self._used = other_bytes + RESERVED_BYTES
        self._lock = Lock()

    @property
    def used_bytes(self) -> int:
        return self._used

    @property
    def segment_bytes(self) -> int:
        return sum(self._files.values())

    def file_bytes(self, number: int) -> int:
        return self._files.get(number, 0)

    def set_file(self, number: int, num_bytes: int) -> None:
        """OSError if the file would grow beyond the budget; then nothing has changed."""
        with self._lock:
            used = self._used + num_bytes - self._files.get(number, 0)
            if used > max(self.budget_bytes, self._used):
                raise OSError(errno.EDQUOT, "the tier's budget is used up")
            self._files[number] = num_bytes
            self._used = used

    def add_file(self, number: int, num_bytes: int) -> None:
        """Counts a file that another process has made, whatever the budget says."""
        with self._lock:
            self._used += num_bytes - self._files.get(number, 0)
            self._files[number] = num_bytes

    def drop_file(self, number: int) -> None:
        with self._lock:
            self._used -= self._files.pop(number, 0)
