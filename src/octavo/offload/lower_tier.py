"""One tier below the arena, as the manager sees it: with pauses, so that a medium that hangs is not waited for by all.

available --failed--> paused for 1 s, 2 s, 4 s, ... 60 s --> available
                                     `-- the first job that works sets the pause back to 1 s
"""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.chunks import OffloadKey
from octavo.tiers import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadLimits:
    """What bounds the traffic between the arena and the tiers below."""

    store_timeout_s: float = 30.0
    """A store that a tier has not finished by then is given up."""
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0
    """How long a tier is left alone after it missed a deadline, at first and at most."""
    chunks_per_job: int = 64
    """The most that a tier is asked for at once."""
    waiting_share: float = 0.25
    """The part of the arena's slots that may wait to be written to the tiers below; what comes then is dropped."""
    most_failed_keys: int = 4096
    """Keys that are remembered as not to be read again for `first_pause_s`; the oldest is forgotten for another."""


class LowerTier:
    """A tier, and whether it is worth asking now."""

    def __init__(self, tier: Tier, limits: OffloadLimits) -> None:
        self.tier = tier
        self.is_available = True
        self.num_pauses = 0
        self._limits = limits
        self._pause_s = limits.first_pause_s
        self._resume_at = 0.0

    def masks(self, keys: Sequence[OffloadKey]) -> list[int]:
        """By key: the blocks that the tier has, 0 while it is paused."""
        return self.tier.lookup(keys) if self.is_available and keys else [0] * len(keys)

    def missed_deadline(self, now: float) -> None:
        if not self.is_available:
            return  # jobs from before the pause
        self.is_available = False
        self.num_pauses += 1
        self._resume_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._limits.longest_pause_s)

    def worked(self) -> None:
        self._pause_s = self._limits.first_pause_s

    def poll(self, now: float) -> None:
        if not self.is_available and now >= self._resume_at:
            self.is_available = True
