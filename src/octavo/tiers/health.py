"""`Health`: whether a medium works, when to try it again, and one line in the log for each turn.

OK --`degrade`--> DEGRADED --a probe succeeds--> OK
                     | ^ a probe fails: wait twice as long, at most a minute
"""

import logging

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
        self._what = what
        self._pause_s = _FIRST_PAUSE_S
        self._probe_at: float | None = None
        self._is_probing = False

    @property
    def is_ok(self) -> bool:
        return self.state is TierState.OK

    def degrade(self, reason: str) -> None:
        """Turns the medium off, and logs it once."""
        if not self.is_ok:
            return
        self.turn_off(reason, _FIRST_PAUSE_S)
        self.num_degradations += 1
        _log.warning("%s is turned off, and is tried now and then: %s", self._what, reason)

    def turn_off(self, reason: str, pause_s: float) -> None:
        """Turns the medium off until a probe after this pause, and logs nothing."""
        self.state, self.reason = TierState.DEGRADED, reason
        self._pause_s, self._probe_at = pause_s, None

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
            self.came_back()
        else:
            self._pause_s = self.next_pause_s
            self.num_failed_probes += 1
            self.reason = failure or self.reason

    def came_back(self) -> None:
        """A probe has succeeded."""
        _log.warning("%s is back", self._what)

    @property
    def next_pause_s(self) -> float:
        """The pause after one that has not helped."""
        return min(2 * self._pause_s, _LONGEST_PAUSE_S)
