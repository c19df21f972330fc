"""Whether loading is worth it: measured bandwidth of each way against the measured speed of computing a prompt.

Small amounts say nothing about a rate, since they are over before anybody looks; they are not measured, and so tried.
"""

_WEIGHT_OF_NEWEST = 0.25
_LEAST_TOKENS = 64
_LEAST_BYTES = 4 << 20
_TRIED_ANYWAY = 16
"""One in 16 loads that seem too slow is tried, since a slow medium may have become quick again."""


class MovingRate:
    """Units per second, recent measurements first. None until one was made."""

    def __init__(self, *, least: float) -> None:
        self._least = least
        self.per_second: float | None = None

    def note(self, amount: float, seconds: float) -> None:
        if amount < self._least or seconds <= 0:
            return
        rate = amount / seconds
        if self.per_second is None:
            self.per_second = rate
        else:
            self.per_second += _WEIGHT_OF_NEWEST * (rate - self.per_second)

    def seconds_for(self, amount: float) -> float:
        """Zero while nothing was measured: what is unknown is tried."""
        return 0.0 if self.per_second is None else amount / self.per_second


class LoadSpeeds:
    """What loads and computing have been found to take."""

    def __init__(self) -> None:
        self.prefill = MovingRate(least=_LEAST_TOKENS)
        """Tokens."""
        self.from_memory = MovingRate(least=_LEAST_BYTES)
        """Bytes, host memory to device."""
        self.from_tiers = MovingRate(least=_LEAST_BYTES)
        """Bytes, from below host memory into it."""
        self._num_too_slow = 0

    def is_worth_loading(self, *, tokens: int, bytes_in_memory: int, bytes_below: int) -> bool:
        """Whether loading these bytes is expected to be quicker than computing the tokens."""
        if self.prefill.per_second is None:
            return True
        loading = self.from_tiers.seconds_for(bytes_below) + self.from_memory.seconds_for(bytes_in_memory + bytes_below)
        if loading < self.prefill.seconds_for(tokens):
            return True
        self._num_too_slow += 1
        return self._num_too_slow % _TRIED_ANYWAY == 0
