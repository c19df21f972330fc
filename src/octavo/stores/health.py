"""`StoreHealth`: turns a store off when three calls fail in a row, or when it throttles one."""

from octavo.stores.client import StoreBusyError, StoreDownError
from octavo.tiers import Health

_MOST_FAILURES = 3


class StoreHealth(Health):
    def __init__(self, what: str) -> None:
        super().__init__(what)
        self._num_failures = 0

    def worked(self) -> None:
        self._num_failures = 0

    def failed(self, error: StoreDownError) -> None:
        """Notes that a call failed, or ended too late."""
        self._num_failures += 1
        if self._num_failures >= _MOST_FAILURES or isinstance(error, StoreBusyError):
            self.degrade(str(error))

    def probed(self, failure: str | None) -> None:
        super().probed(failure)
        if failure is None:
            self.worked()
