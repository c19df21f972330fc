"""`StoreHealth`: turns a store off when three calls fail in a row, or when it throttles one.

OK --three failures--> DEGRADED --a probe succeeds--> OK, on trial --what failed works--> OK
                          ^                               |
                          +--a failure: a longer pause----+

A probe is a small call, and may work where the calls that matter do not: a right is missing, a disk is full. So the log
says that a store is back when they work.
"""

from collections import Counter

from octavo.stores.client import StoreBusyError, StoreDownError
from octavo.tiers import Health

_MOST_FAILURES = 3


class StoreHealth(Health):
    """Calls are of several kinds: that a store answers one does not tell that it answers another."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.is_on_trial = False
        """Whether a probe has worked, and what failed before it has not been seen to work since."""
        self._failures: Counter[str] = Counter()
        """By kind of call: failures in a row."""

    def worked(self, kind: str, *, is_proof: bool = True) -> None:
        """Notes that a call was answered. `is_proof`: False if a store that is out of order may answer the same."""
        if self.is_on_trial and not is_proof:
            return
        del self._failures[kind]
        if self.is_on_trial and not self._failures:
            self.is_on_trial = False
            super().came_back()

    def failed(self, kind: str, error: StoreDownError) -> None:
        """Notes that a call failed, or ended too late."""
        self._failures[kind] += 1
        is_busy = isinstance(error, StoreBusyError)
        if self.is_on_trial or is_busy or self._failures.total() >= _MOST_FAILURES:
            self.degrade(str(error))

    def degrade(self, reason: str) -> None:
        if not self.is_on_trial:
            super().degrade(reason)
            return
        self.is_on_trial = False
        self.turn_off(reason, self.next_pause_s)

    def came_back(self) -> None:
        """The log says so when a call has worked."""
        self.is_on_trial = True
