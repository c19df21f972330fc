"""`PublisherConfig`: the endpoints of a publisher and the bounds of its queue and replay buffer."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta, field

from octavo.errors import InputError
from octavo.events.endpoints import check_endpoint, is_local
from octavo.events.wire import DEFAULT_LIMITS
from octavo.settings import Count, Settings

NotNegative = Annotated[int, Meta(ge=0)]
_MOST_HWM = (1 << 31) - 1
"""ZMQ's own bound of this number."""
_MOST_RANK = (1 << 16) - 1
"""It is added to a port. A number that no message can hold would leave a publisher that tells nothing."""


class PublisherConfig(Settings, frozen=True, kw_only=True):
    """The endpoints of a publisher and the bounds of its queue and replay buffer."""

    endpoint: str = "tcp://127.0.0.1:5557"
    """Where KV events are published, such as tcp://127.0.0.1:5557."""
    replay_endpoint: str | None = field(name="replay", default=None)
    """Where a subscriber asks for events that it missed."""
    keys: Path | None = None
    """A folder of `octavo events keys`: events are encrypted, and only the subscribers in it can read them."""
    allows_plain: bool = field(name="plain", default=False)
    """Other machines may read the events without keys. Events contain the prompts."""
    topic: str = ""
    """What each message begins with; subscribers choose by it."""
    data_parallel_rank: Annotated[int, Meta(ge=0, le=_MOST_RANK)] = 0
    """The number of this engine among replicas: it is added to the ports, and set in batches that name no rank."""
    bind: bool = True
    """Whether this end binds the endpoint; else it connects to a subscriber that does. The replay endpoint is always
    bound."""
    hwm: Annotated[int, Meta(ge=1, le=_MOST_HWM)] = 10_000
    """Messages that wait for one subscriber. Beyond that the subscriber misses messages and sees a gap."""
    max_queued_batches: Count = 10_000
    """Batches that wait to be sent. Beyond that they are dropped, and subscribers see a gap."""
    max_queued_bytes: Count = 64 << 20
    """Bytes that wait to be sent, as estimated before encoding. Batches beyond that are dropped, and subscribers see a
    gap."""
    max_message_bytes: Count = DEFAULT_LIMITS.max_payload_bytes
    """The longest batch in bytes; longer ones are dropped, since no subscriber would read them."""
    replay_batches: NotNegative = 100_000
    """Batches that are kept for replay. The oldest are forgotten."""
    replay_bytes: NotNegative = field(name="replay_buffer_bytes", default=64 << 20)
    """Bytes that are kept for replay. The oldest batches are forgotten."""
    max_replay_requests: Count = 64
    """Requests for replay that wait for their answers; more are refused."""
    close_timeout_s: Annotated[float, Meta(ge=0, le=1e9)] = 1.0
    """How long the queued batches may take to be sent when the publisher is closed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for endpoint in (self.endpoint, self.replay_endpoint):
            if endpoint is not None and not is_local(check_endpoint(endpoint)):
                self._check_may_leave(endpoint)

    def _check_may_leave(self, endpoint: str) -> None:
        if self.keys is None and not self.allows_plain:
            raise InputError(
                f"{endpoint} can be read from other machines, and events contain the prompts: name a folder of keys "
                "(keys, --kv-events-keys; `octavo events keys` makes them), or set plain (--kv-events-plain)"
            )
