"""`FollowedPublisher`: one publisher of an endpoint, what was heard of it, and when it counts as silent."""

from dataclasses import dataclass

from octavo.events.session import PublisherSession

_HEARTBEATS_UNTIL_SILENT = 3
_NEVER = float("inf")


@dataclass(slots=True, kw_only=True)
class FollowedPublisher:
    """A publisher and its session. One that promises heartbeats is silent when they do not come; another, such as
    vLLM's, when its connection is lost and replay is not answered either."""

    session: PublisherSession
    topic: bytes | None = None
    """None until the first message names it."""
    heard_at: float = 0.0
    """When its last live message came."""
    answered_at: float = 0.0
    """When its last answer of replay was complete."""
    is_silent: bool = False
    _patience_s: float | None = None
    """How long it may be silent. None: it has promised no heartbeat."""
    _all_since: int | None = 0
    """All messages from this one on were delivered; None: from the next one on."""

    def promised(self, heartbeat_s: float, now: float) -> None:
        """Its plan has told its heartbeat."""
        self._patience_s = _HEARTBEATS_UNTIL_SILENT * heartbeat_s
        self.heard_at = self.heard_at or now

    def missed_some(self) -> None:
        """Messages before the next one that is delivered are lost."""
        self._all_since = None

    def is_whole(self, sequence: int, whole_since: int | None) -> bool:
        """Delivers a message. Whether all was told with it that the publisher holds."""
        if self._all_since is None:
            self._all_since = sequence
        return whole_since is not None and self._all_since <= whole_since

    def silent_at(self, *, lost_at: float | None, patience_s: float) -> float:
        """When it becomes silent, if nothing is heard until then; `lost_at`: when its connection was lost, if it is.
        `patience_s` is for publishers without heartbeats."""
        if self.is_silent:
            return _NEVER
        if self._patience_s is not None:
            return self.heard_at + self._patience_s
        return _NEVER if lost_at is None else max(lost_at, self._heard_or_answered_at) + patience_s

    def silent_s(self, now: float) -> float:
        """For how long nothing was heard."""
        return now - (self.heard_at if self._patience_s is not None else self._heard_or_answered_at)

    @property
    def _heard_or_answered_at(self) -> float:
        """What the connection brought before it was lost may be read after the loss is noticed."""
        return max(self.heard_at, self.answered_at)

    def answers(self, now: float) -> bool:
        """It has answered replay. Whether that ends a silence: not where heartbeats are missing."""
        self.answered_at = now
        was_silent = self.is_silent and self._patience_s is None
        if was_silent:
            self.is_silent = False
        return was_silent
