"""`PublisherConfig`: the endpoints of a publisher and the bounds of its queue and replay buffer."""

import threading
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import InputError
from octavo.events.endpoints import check_endpoint, is_local
from octavo.events.wire import DEFAULT_LIMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherConfig:
    """The endpoints of a publisher and the bounds of its queue and replay buffer."""

    endpoint: str = "tcp://127.0.0.1:5557"
    replay_endpoint: str | None = None
    keys: Path | None = None
    """A folder of `make_keys`: events are encrypted, and only the subscribers in it can read them."""
    allows_plain: bool = False
    """Other machines may read the events without keys. Events contain the prompts."""
    topic: str = ""
    data_parallel_rank: int = 0
    """It is added to the ports, and set in batches that name no rank."""
    bind: bool = True
    """False connects to a subscriber that binds `endpoint`. The replay endpoint is always bound."""
    hwm: int = 10_000
    """Messages that wait for one subscriber. Beyond that the subscriber misses messages and sees a gap."""
    max_queued_batches: int = 10_000
    max_queued_bytes: int = 64 << 20
    """As estimated before encoding. Batches beyond it are dropped, and subscribers see a gap."""
    max_message_bytes: int = DEFAULT_LIMITS.max_payload_bytes
    """Longer batches are dropped, since no subscriber would read them."""
    replay_batches: int = 10_000
    replay_bytes: int = 64 << 20
    """Beyond either bound the oldest batches are forgotten."""
    max_replay_requests: int = 64
    """Requests for replay that wait for their answers; more are refused."""
    close_timeout_s: float = 1.0
    """How long `close` may take to send the queued batches."""

    def __post_init__(self) -> None:
        for endpoint in (self.endpoint, self.replay_endpoint):
            if endpoint is not None and not is_local(check_endpoint(endpoint)):
                self._check_may_leave(endpoint)
        least = {"data_parallel_rank": 0, "replay_batches": 0, "replay_bytes": 0} | dict.fromkeys(
            ("hwm", "max_queued_batches", "max_queued_bytes", "max_message_bytes", "max_replay_requests"), 1
        )
        for name, number in least.items():
            if getattr(self, name) < number:
                raise InputError(f"{name} must be {number} or more, not {getattr(self, name)}")
        if not 0 <= self.close_timeout_s <= threading.TIMEOUT_MAX:
            raise InputError(f"close_timeout_s must be 0 or more, not {self.close_timeout_s}")

    def _check_may_leave(self, endpoint: str) -> None:
        if self.keys is None and not self.allows_plain:
            raise InputError(
                f"{endpoint} can be read from other machines, and events contain the prompts: name a folder of keys "
                "(keys, --kv-events-keys; `octavo events keys` makes them), or set allows_plain (--kv-events-plain)"
            )
