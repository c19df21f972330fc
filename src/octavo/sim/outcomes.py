"""The outcome of one simulated request."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from octavo.ids import GroupIdx
from octavo.sim.traces import TraceRequest
from octavo.why import Cause


@dataclass(slots=True, kw_only=True)
class Outcome:
    """One request: when it was served, what it resumed, and what it could have resumed."""

    number: int
    asked: TraceRequest
    first_token_s: float | None = None
    end_s: float | None = None
    resumed: Mapping[str, int] = field(default_factory=dict)
    """Resumed tokens by medium."""
    num_seen_tokens: int = 0
    """Tokens up to the last boundary that requests had computed before: no cache could resume more."""
    num_lost_tokens: int = 0
    """The part of these that was computed again."""
    cause: Cause | None = None
    lost_group: GroupIdx | None = None
    """The first group that lacked a block."""
    is_judged: bool = False

    @property
    def num_resumed_tokens(self) -> int:
        return sum(self.resumed.values())

    @property
    def ttft_s(self) -> float | None:
        """Time to the first token, from the arrival."""
        return None if self.first_token_s is None else self.first_token_s - self.asked.arrival_s
