"""`TokenTelling`: whether an engine is asked for the tokens of prompts."""

import math
from dataclasses import dataclass

_PAUSE_S = 10.0


@dataclass(slots=True)
class TokenTelling:
    """An engine that did not tell them in time is asked again after a pause, with one prompt first: requests wait for
    the answer. One that told those of another prompt meanwhile is only slow with this one."""

    _told_at: float = -math.inf
    """When its last answer came."""
    _asked_from: float = -math.inf
    """The end of the pause; -inf while it tells them in time."""

    @property
    def is_in_time(self) -> bool:
        return self._asked_from == -math.inf

    def may_be_asked(self, now: float) -> bool:
        return now >= self._asked_from

    def ask(self, now: float) -> None:
        """It is asked: after a pause nobody else asks until it has answered, or another pause has passed."""
        if not self.is_in_time:
            self._asked_from = now + _PAUSE_S

    def told(self, now: float) -> None:
        """It has answered, be it that there are none."""
        self._told_at, self._asked_from = now, -math.inf

    def was_late(self, asked_at: float, now: float) -> None:
        """It has not answered in time."""
        if self._told_at < asked_at:
            self._asked_from = now + _PAUSE_S
