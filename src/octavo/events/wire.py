"""The wire form of event batches: msgpack in three ZMQ frames `[topic, sequence, payload]`, as vLLM has it.

A payload is an array `[ts, [events], data_parallel_rank]`. An event is a map with its type under "type" and defaults
left out; older publishers send an array whose first element is the type. Both are read, the map is written.
Nothing that comes from a socket is trusted: whatever is wrong with it, `decode_batch` raises `WireError`.
"""

from octavo.errors import OctavoError
from octavo.events.messages import KVEventBatch


class WireError(OctavoError):
    """Bytes that are not a batch of events, or more of one than the limits allow."""


def encode_batch(batch: KVEventBatch) -> bytes:
    """The payload frame of a batch."""
    raise WireError


def decode_batch(payload: bytes) -> KVEventBatch:
    """The batch that a payload frame holds. WireError for whatever is not one."""
    raise WireError
