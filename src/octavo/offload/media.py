"""`Media`: host memory and the media below it, by name, as those outside are told of them."""

from collections import Counter
from collections.abc import Sequence

from octavo.host import MEMORY
from octavo.offload.load_choice import MovingLine
from octavo.offload.lower_tier import LowerTier


class Media:
    """What can be said of each medium without asking what it has."""

    def __init__(self, lowers: Sequence[LowerTier], speeds: Sequence[MovingLine]) -> None:
        """`speeds`: per tier, the seconds of its reads by their bytes."""
        self._lowers, self._speeds = lowers, speeds
        self.names = [MEMORY, *(lower.medium for lower in lowers)]
        """Memory and the media below it, the slowest last."""

    @property
    def read_speeds(self) -> list[tuple[str, MovingLine]]:
        """Per tier below memory: its medium, and the seconds of its reads by their bytes."""
        return list(zip(self.names[1:], self._speeds, strict=True))

    @property
    def stores(self) -> dict[str, str]:
        """By medium: the name of the store that it shares with other engines, unless it has two."""
        names = {(lower.medium, lower.shared_as) for lower in self._lowers}
        media = Counter(medium for medium, _ in names)
        return {medium: name for medium, name in names if name and media[medium] == 1}

    @property
    def stores_off(self) -> list[str]:
        """Of `stores`, the media that followers are told to be off."""
        on = {lower.medium for lower in self._lowers if not lower.is_told_as_off}
        return [medium for medium in self.stores if medium not in on]

    @property
    def cold_starts(self) -> list[str]:
        """What tiers have kept under other identities, as they said when they were opened."""
        return [lower.cold_start for lower in self._lowers if lower.cold_start]
