"""`StepTimes`: how long vLLM's steps take in which prompts are computed, from what its scheduler shows.

A step begins when it is scheduled, or when the step before has ended, and ends when its output is there. vLLM may
schedule a step before the last one has ended:

    scheduled 1    scheduled 2         output 1                output 2
    [------------- step 1 -------------][------- step 2 -------]
"""

from collections import deque
from collections.abc import Callable, Mapping, Sized

_MOST_IN_FLIGHT = 64


class StepTimes:
    """Tells `note` the prompt tokens and the seconds of each step that computes prompts."""

    def __init__(self, note: Callable[[int, float], None]) -> None:
        self.num_prompt_tokens = 0
        """The prompt tokens that were scheduled since the start."""
        self._note = note
        self._in_flight: deque[tuple[int, float]] = deque(maxlen=_MOST_IN_FLIGHT)
        """Per step: its prompt tokens, and when it was scheduled."""
        self._last_end = 0.0

    def scheduled(self, num_prompt_tokens: int, now: float) -> None:
        self.num_prompt_tokens += num_prompt_tokens
        self._in_flight.append((num_prompt_tokens, now))

    def ended(self, now: float) -> None:
        """The oldest step of those in flight has ended."""
        if not self._in_flight:
            return
        num_prompt_tokens, scheduled_at = self._in_flight.popleft()
        if num_prompt_tokens:
            self._note(num_prompt_tokens, now - max(scheduled_at, self._last_end))
        self._last_end = now


def count_prompt_tokens(scheduled: Mapping[str, int], drafts: Mapping[str, Sized]) -> int:
    """The number of a step's tokens, given by request, that belong to prompts. A request that decodes has one token,
    and its drafts."""
    if sum(scheduled.values()) == len(scheduled) + sum(map(len, drafts.values())):
        return 0
    return sum(count for name, count in scheduled.items() if count > 1 + len(drafts.get(name, ())))
