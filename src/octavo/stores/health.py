"""`Health` of a store: whether it is asked at all, and when to look again.

OK --three calls fail in a row, or one is throttled--> DEGRADED --a probe succeeds--> OK
                                                         | ^ a probe fails: wait twice as long, at most a minute
"""

import logging

from octavo.stores.client import StoreBusyError, StoreDownError
from octavo.tiers import TierState

_log = logging.getLogger(__name__)
_MOST_FAILURES = 3
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


class Health:
    """On the engine's thread; time is an argument."""

    def __init__(self, what: str) -> None:
        self.state = TierState.OK
        self.reason = ""
        self.num_degradations = 0
        self.num_probes = 0
        self.num_failed_probes = 0
        self._what = what
        self._num_failures = 0
        self._pause_s = _FIRST_PAUSE_S
        self._probe_at: float | None = None
        self._is_probing = False

    @property
    def is_ok(self) -> bool:
        return self.state is TierState.OK

    def worked(self) -> None:
        self._num_failures = 0

    def failed(self, error: StoreDownError) -> None:
        """A call did not work, or came too late."""
        self._num_failures += 1
        if self._num_failures >= _MOST_FAILURES or isinstance(error, StoreBusyError):
            self.degrade(str(error))

    def degrade(self, reason: str) -> None:
        """Turns the store off; the log hears of it once."""
        if not self.is_ok:
            return
        self.state, self.reason = TierState.DEGRADED, reason
        self.num_degradations += 1
        self._pause_s, self._probe_at, self._is_probing = _FIRST_PAUSE_S, None, False
        _log.warning("%s is turned off, and is tried now and then: %s", self._what, reason)

    def is_probe_due(self, now: float) -> bool:
        """Whether to look now whether the store works; the answer goes to `probed`."""
        if self.is_ok or self._is_probing:
            return False
        if self._probe_at is None:
            self._probe_at = now + self._pause_s
        self._is_probing = now >= self._probe_at
        self.num_probes += self._is_probing
        return self._is_probing

    def probed(self, error: StoreDownError | None) -> None:
        """None: the store works."""
        if self.is_ok:
            return
        self._is_probing, self._probe_at = False, None
        if error is None:
            self.state, self.reason, self._num_failures = TierState.OK, "", 0
            _log.warning("%s is back", self._what)
        else:
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self.num_failed_probes += 1
            self.reason = str(error)
