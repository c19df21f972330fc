"""`SubscriberStats`: what a subscriber has read and delivered, in numbers."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class SubscriberStats:
    """The counters of a subscriber. Only its reading thread changes its own; others get a copy."""

    received: int = 0
    """Messages read from live sockets."""
    delivered: int = 0
    duplicates: int = 0
    malformed: int = 0
    """Messages that do not follow the protocol, or whose payload cannot be decoded."""
    discarded: int = 0
    """Live messages of a lost connection, and messages of topics beyond `max_topics`."""
    gaps: int = 0
    """Of the copy: the sum of all sessions' gaps."""
    replays: int = 0
    """Requests for replay."""
    replayed: int = 0
    """Messages received in answers of replay."""
    resyncs: int = 0
