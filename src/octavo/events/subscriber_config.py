"""`SubscriberConfig`: which publishers a subscriber hears, and how much it reads and keeps."""

from dataclasses import dataclass
from pathlib import Path

from octavo.errors import InputError
from octavo.events.endpoints import check_endpoint
from octavo.events.wire import DEFAULT_LIMITS, WireLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """The endpoints of one publisher. Without a replay endpoint, several publishers with different topics may share
    one source."""

    endpoint: str = "tcp://127.0.0.1:5557"
    replay_endpoint: str | None = None
    keys: Path | None = None
    """A folder with the keys that the publisher asks for: see `octavo.events.make_keys`."""
    bind: bool = False
    """vLLM connects to addresses such as `tcp://127.0.0.1:P`; then the subscriber must bind."""
    topics: tuple[str, ...] = ("",)
    """Prefixes of the topics to subscribe to."""

    def __post_init__(self) -> None:
        check_endpoint(self.endpoint)
        if "*" in self.endpoint and not self.bind:
            raise InputError(f"{self.endpoint} can be bound, not connected to: name the publisher's host, or bind")
        if self.replay_endpoint is not None:
            check_endpoint(self.replay_endpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberConfig:
    """The sources of a subscriber and its bounds."""

    sources: tuple[SourceConfig, ...] = (SourceConfig(),)
    hwm: int = 10_000
    """Messages of one publisher that wait to be read. More are dropped, and show as a gap."""
    limits: WireLimits = DEFAULT_LIMITS
    with_tokens: bool = True
    """Without, `token_ids` of what is stored only tells whether there are any (`skim_batch`)."""
    replay_timeout_s: float = 2.0
    """The longest pause between two messages of an answer. Live messages wait for its end."""
    recheck_s: float = 5.0
    """After this time without a message, replay is asked for lost messages. 0: never."""
    max_replay_messages: int = 1 << 17
    """The longest answer in messages; a longer one counts as failed."""
    max_topics: int = 1024
    """The most publishers at one endpoint; messages of further topics are counted and skipped."""
    heartbeat_s: float = 5.0
    """The interval of ZMQ's pings; after three without an answer the connection is made anew, and a publisher that gets
    none for as long ends it. 0: no pings."""
    lost_s: float = 30.0
    """A publisher without heartbeats counts as silent when its connection has been lost for so long."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise InputError("a subscriber needs a source")
        for name in ("hwm", "max_replay_messages", "max_topics"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if not 0 < self.replay_timeout_s < float("inf"):
            raise InputError(f"replay_timeout_s must be more than 0, not {self.replay_timeout_s}")
        for name in ("recheck_s", "heartbeat_s", "lost_s"):
            if not 0 <= getattr(self, name) < 1 << 16:
                raise InputError(f"{name} must be 0 or more, not {getattr(self, name)}")
