"""`ProgressWatch`: whether an engine that has work makes progress.

A step makes progress if a choice has more tokens computed than ever before. Tokens that are computed again after a
preemption do not count. An engine stalls if it makes no progress

    while it computes as many tokens as two longest contexts: it is busy, and loses what it computes; or
    while it computes nothing for 30 s: that is longer than a load may keep a request waiting.
"""

from collections.abc import Iterable

from octavo.engine.scheduler import Chunk

_MOST_CONTEXTS = 2
_MOST_IDLE_S = 30.0


class ProgressWatch:
    """Notes every step of an engine that has work."""

    def __init__(self, longest_context: int) -> None:
        self._most_tokens = _MOST_CONTEXTS * longest_context
        self._tokens_computed = 0
        """Tokens computed since the last progress or the last stall."""
        self._idle_since: float | None = None
        self.is_stalled = False
        """Stays true until a step makes progress, or there is no work any more."""

    def note_step(self, chunks: Iterable[Chunk]) -> bool:
        """Notes the chunks of a step. True if the engine stalls, for the first time or again."""
        self._idle_since = None
        for chunk in chunks:
            self._tokens_computed += chunk.end - chunk.start
            if chunk.end > chunk.choice.most_computed:
                chunk.choice.most_computed = chunk.end
                self.is_stalled, self._tokens_computed = False, 0
        return self._tokens_computed >= self._most_tokens and self._stall()

    def note_idle_step(self, now: float) -> bool:
        """Notes a step that computed nothing. True if the engine stalls, for the first time or again."""
        if self._idle_since is None:
            self._idle_since = now
        return now >= self._idle_since + _MOST_IDLE_S and self._stall()

    def note_rest(self) -> None:
        """Notes that there is no work."""
        self._idle_since, self._tokens_computed, self.is_stalled = None, 0, False

    def _stall(self) -> bool:
        self._idle_since, self._tokens_computed, self.is_stalled = None, 0, True
        return True
