"""`StoreHealth`: turns a store off when three calls fail in a row, or when an error says that no call should follow."""

from octavo.stores.client import StoreDownError
from octavo.tiers import Health

_MOST_FAILURES = 3


class StoreHealth(Health):
    """The health of one store, or of storing there."""

    def worked(self, kind: str, *, is_proof: bool = True) -> None:
        """Notes that a call was answered. `is_proof`: False if a store that is out of order may answer the same."""
        if is_proof or not self.is_on_trial:
            super().worked(kind)

    def failed(self, kind: str, error: StoreDownError) -> None:
        """Notes that a call failed, or ended too late."""
        self._failures[kind] += 1
        if self.is_on_trial or error.turns_off or self._failures.total() >= _MOST_FAILURES:
            self.degrade(str(error))
