"""`Health`: whether a medium works, when to try it again, and one line in the log for each turn.

OK --`degrade`--> DEGRADED --a probe succeeds--> OK, on trial --what failed works--> OK
                     | ^ a probe fails, or a call on trial does: wait twice as long, at most a minute

A probe is a small call, and may work where the calls that matter do not: a right is missing, or a bad spot of a disk is
written again and again. So the log says that a medium is back when they work.
"""

import logging
from collections import Counter

from octavo.tiers.base import TierState

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


class Health:
    """The state of one medium, on the engine's thread; times are arguments. There is one probe at a time."""

    def __init__(self, what: str) -> None:
        """`what`: the name of the medium in the log."""
        self.state = TierState.OK
        self.reason = ""
        self.num_degradations = 0
        self.num_probes = 0
        self.num_failed_probes = 0
        self.is_on_trial = False
        """Whether a probe has worked, and what failed before it has not been seen to work since."""
        self._failures: Counter[str] = Counter()
        """By kind of call: failures in a row. That a medium answers one kind does not tell that it answers another."""
        self._what = what
        self._pause_s = _FIRST_PAUSE_S
        self._probe_at: float | None = None
        self._is_probing = False

    @property
    def is_ok(self) -> bool:
        return self.state is TierState.OK

    def degrade(self, reason: str) -> None:
        """Turns the medium off, and logs it once. On trial it has not been back, and gets a longer pause."""
        if not self.is_ok:
            return
        if not self.is_on_trial:
            self.num_degradations += 1
            _log.warning("%s is turned off, and is tried now and then: %s", self._what, reason)
        self._pause_s = self._next_pause_s if self.is_on_trial else _FIRST_PAUSE_S
        self.state, self.reason = TierState.DEGRADED, reason
        self.is_on_trial, self._probe_at = False, None

    def worked(self, kind: str) -> None:
        """Notes that a call of this kind has worked."""
        del self._failures[kind]
        if self.is_on_trial and not self._failures:
            self._come_back()

    def is_probe_due(self, now: float) -> bool:
        """Whether a probe should begin now. Its end goes to `probed`."""
        if self.is_ok or self._is_probing:
            return False
        if self._probe_at is None:
            self._probe_at = now + self._pause_s
        self._is_probing = now >= self._probe_at
        self.num_probes += self._is_probing
        return self._is_probing

    def probed(self, failure: str | None) -> None:
        """The result of a probe: None if the medium works. An empty failure has the former reason."""
        self._is_probing, self._probe_at = False, None
        if failure is None:
            self.state, self.reason = TierState.OK, ""
            self.is_on_trial = bool(self._failures)
            if not self.is_on_trial:
                self._come_back()
        else:
            self._pause_s = self._next_pause_s
            self.num_failed_probes += 1
            self.reason = failure or self.reason

    def _come_back(self) -> None:
        self.is_on_trial = False
        _log.warning("%s is back", self._what)

    @property
    def _next_pause_s(self) -> float:
        """The pause after one that has not helped."""
        return min(2 * self._pause_s, _LONGEST_PAUSE_S)
