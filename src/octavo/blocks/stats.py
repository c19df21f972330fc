"""Hit statistics with honest denominators: every prompt counts, and what did not hit says which group lacked it."""

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class PrefixCacheStats:
    """Counts since the last take. A request counts when it starts, not each time that it is looked up."""

    requests: int = 0
    tokens_asked: int = 0
    """Tokens of all requests that started, whether caching could have helped them or not."""
    tokens_attainable: int = 0
    """Tokens up to the last boundary of each of them: what a full hit would have resumed."""
    tokens_resumed: int = 0
    tokens_missed_by_group: dict[int, int] = field(default_factory=dict)
    """Attainable tokens that were not resumed, by the group that ruled out the next larger boundary."""

    def record(self, *, asked: int, attainable: int, resumed: int, limited_by: int | None) -> None:
        self.requests += 1
        self.tokens_asked += asked
        self.tokens_attainable += attainable
        self.tokens_resumed += resumed
        if limited_by is not None:
            missed = self.tokens_missed_by_group
            missed[limited_by] = missed.get(limited_by, 0) + attainable - resumed
