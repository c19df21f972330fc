"""The wire form of event batches: msgpack in three ZMQ frames `[topic, sequence, payload]`, as vLLM has it.

A payload is an array `[ts, [events], data_parallel_rank]`; a batch that tells the plan has it as a fourth element, and
one that ends a telling of all has `whole_since` as a fifth. An event is a map with its type under "type"; fields with
default values are left out. vLLM up to 0.23 sent an event as an array that starts with the type, and older versions
sent fewer fields. Both forms are read, the map is written. Unknown fields are skipped. An unknown type is refused,
since its meaning cannot be applied. If a key occurs twice, the last value counts, as in vLLM's decoder.

Payloads are not trusted: `decode_batch` raises `WireError` for every faulty one. The decoded objects take at most about
30 times the payload's bytes, so `max_payload_bytes` bounds memory.
"""

from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta

from octavo.errors import MALFORMED, InputError, WireError
from octavo.events.messages import (
    MAX_EVENTS,
    MAX_EXTRA_KEYS_OF_BLOCK,
    MAX_HASHES,
    MAX_TOKENS,
    AllBlocksCleared,
    AnyEvent,
    BlockRemoved,
    BlockStored,
    ExternalHash,
    ExtraKeysOfBlock,
    KVEventBatch,
)
from octavo.events.published_plan import PublishedPlan

_BYTES_OF_SEQUENCE = 8
_MAX_CHARS_OF_REASON = 200
"""Reasons quote the payload and end up in logs, so they are cut."""
_MAX_RARE_EXTRA_KEYS = 1 << 19
"""The most extra keys and blocks with extra keys of a batch that is in an older form or has bytes as extra keys."""

_Decoded = TypeVar("_Decoded")


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """The bounds of one batch; a batch beyond them is a `WireError`. No bound exceeds those in `messages`."""

    max_payload_bytes: int = 16 << 20
    """160,000 blocks with their tokens, or 1,800,000 without."""
    max_events: int = MAX_EVENTS
    max_hashes: int = 1 << 18
    """The hashes of all events together (four million tokens in blocks of 16). It bounds the extra keys too."""
    max_tokens: int = MAX_TOKENS
    bytes_that_need_no_count: int = field(init=False, repr=False, compare=False)
    """A payload of at most this many bytes cannot exceed the counts, as a hash, key or token takes a byte or more."""

    def __post_init__(self) -> None:
        ceilings = {"max_events": MAX_EVENTS, "max_hashes": MAX_HASHES, "max_tokens": MAX_TOKENS}
        for name, ceiling in ceilings.items():
            if not 0 <= getattr(self, name) <= ceiling:
                raise InputError(f"{name} must be 0 to {ceiling}, not {getattr(self, name)}")
        if self.max_payload_bytes < 0:
            raise InputError(f"max_payload_bytes must be 0 or more, not {self.max_payload_bytes}")

        object.__setattr__(self, "bytes_that_need_no_count", min(self.max_hashes, self.max_tokens))


DEFAULT_LIMITS = WireLimits()


def encode_batch(batch: KVEventBatch) -> bytes:
    """The payload frame of a batch."""
    if batch.plan is not None or batch.whole_since is not None:
        return _ENCODER.encode(batch)
    return _ENCODER.encode((batch.ts, batch.events, batch.data_parallel_rank))


def decode_batch(payload: bytes | bytearray | memoryview, *, limits: WireLimits = DEFAULT_LIMITS) -> KVEventBatch:
    """The batch of a payload frame. WireError if it is malformed or exceeds the limits."""
    num_bytes = len(payload)
    if num_bytes > limits.max_payload_bytes:
        raise WireError(f"a payload of {num_bytes} bytes exceeds the limit of {limits.max_payload_bytes}")
    batch = _decode(_DECODER, payload)
    if isinstance(batch, str):
        batch = _decode_rare_form(payload, why=batch)
    if isinstance(batch, str):
        raise WireError(f"not a batch of events: {batch}")
    if not isfinite(batch.ts):
        raise WireError(f"the timestamp is {batch.ts}")
    if len(batch.events) > limits.max_events:
        raise WireError(f"a batch of {len(batch.events)} events exceeds the limit of {limits.max_events}")
    if num_bytes > limits.bytes_that_need_no_count:
        _check_counts(batch, limits)
    if batch.plan is not None:
        plan = _decode(_PLAN_DECODER, cast("msgspec.Raw", batch.plan))
        batch.plan = None if isinstance(plan, str) else plan
    if batch.whole_since is not None:
        sequence = _decode(_SEQUENCE_DECODER, cast("msgspec.Raw", batch.whole_since))
        batch.whole_since = None if isinstance(sequence, str) else sequence
    return batch


def encode_sequence(sequence: int) -> bytes:
    """The sequence frame: 8 bytes, big-endian."""
    if not 0 <= sequence < 1 << 64:
        raise InputError(f"a sequence number has 64 bits, which {sequence} does not fit")
    return sequence.to_bytes(_BYTES_OF_SEQUENCE, "big")


def decode_sequence(frame: bytes) -> int:
    """The number of a sequence frame. WireError if it is malformed."""
    if len(frame) != _BYTES_OF_SEQUENCE:
        raise WireError(f"a sequence frame has {_BYTES_OF_SEQUENCE} bytes, not {len(frame)}")
    return int.from_bytes(frame, "big")


def _check_counts(batch: KVEventBatch, limits: WireLimits) -> None:
    num_hashes = num_extra_keys = num_tokens = 0
    for event in batch.events:
        if isinstance(event, AllBlocksCleared):
            continue
        num_hashes += len(event.block_hashes)
        if isinstance(event, BlockStored):
            num_tokens += len(event.token_ids)
            num_extra_keys += len(event.extra_keys or ())
    for name, value, limit in (
        ("hashes", num_hashes, limits.max_hashes),
        ("extra keys", num_extra_keys, limits.max_hashes),
        ("tokens", num_tokens, limits.max_tokens),
    ):
        if value > limit:
            raise WireError(f"a batch of {value} {name} exceeds the limit of {limit}")


def _decode(decoder: msgspec.msgpack.Decoder[_Decoded], payload: bytes | bytearray | memoryview) -> _Decoded | str:
    """The decoded payload, or the reason why it cannot be decoded. A string, as an exception would keep the payload
    alive."""
    try:
        return decoder.decode(payload)
    except MALFORMED as error:
        return str(error)[:_MAX_CHARS_OF_REASON]


def _decode_rare_form(payload: bytes | bytearray | memoryview, *, why: str) -> KVEventBatch | str:
    """Decodes a batch that the usual decoder refused: events as arrays, or extra keys with bytes."""
    if why.startswith("Expected `object`, got `array`"):
        rare = _decode(_ARRAYS_DECODER, payload)
    elif ".extra_keys" in why:
        rare = _decode(_MAPS_DECODER, payload)
    else:
        return why
    try:
        return rare if isinstance(rare, str) else _usual_batch(rare)
    except MALFORMED as error:
        return f"extra keys: {error}"[:_MAX_CHARS_OF_REASON]


def _usual_batch(rare: Any) -> KVEventBatch:
    keys = _ExtraKeysReader()
    events = [_usual_event(event, keys) for event in rare.events]
    return KVEventBatch(ts=rare.ts, events=events, data_parallel_rank=rare.data_parallel_rank)


def _usual_event(rare: msgspec.Struct, keys: "_ExtraKeysReader") -> AnyEvent:
    event: AnyEvent = _EVENTS[str(rare.__struct_config__.tag)](*msgspec.structs.astuple(rare))
    if not isinstance(event, AllBlocksCleared):
        event.block_hashes = [_unsigned(block_hash) for block_hash in event.block_hashes]
    if isinstance(event, BlockStored):
        event.parent_block_hash = None if event.parent_block_hash is None else _unsigned(event.parent_block_hash)
        event.extra_keys = None if event.extra_keys is None else keys.read(cast("msgspec.Raw", event.extra_keys))
    return event


def _unsigned(block_hash: ExternalHash) -> ExternalHash:
    """vLLM up to 0.10.1 sends hashes with a sign."""
    return block_hash & _LOW_64_BITS if isinstance(block_hash, int) else block_hash


class _ExtraKeysReader:
    """Reads extra keys one by one. That is slow, so it stops at a bound for each batch."""

    def __init__(self) -> None:
        self._left = _MAX_RARE_EXTRA_KEYS

    def read(self, raw: msgspec.Raw) -> list[ExtraKeysOfBlock | None] | None:
        if raw == _NULL:
            return None
        return [
            None if keys == _NULL else self._tuple(keys, depth=2) for keys in self._items(raw, _MAX_RARE_EXTRA_KEYS)
        ]

    def _tuple(self, raw: msgspec.Raw, *, depth: int) -> tuple[Any, ...]:
        return tuple(self._key(key, depth=depth - 1) for key in self._items(raw, MAX_EXTRA_KEYS_OF_BLOCK))

    def _key(self, raw: msgspec.Raw, *, depth: int) -> Any:
        kind = memoryview(raw)[0]
        if kind in _FIRST_BYTES_OF_BIN:
            return _BYTES_DECODER.decode(raw)
        if depth and kind in _FIRST_BYTES_OF_ARRAY:
            return self._tuple(raw, depth=depth)
        return _SCALAR_DECODER.decode(raw)

    def _items(self, raw: msgspec.Raw, most: int) -> list[msgspec.Raw]:
        items = _ITEMS_DECODER.decode(raw)
        self._left -= len(items)
        if len(items) > most or self._left < 0:
            raise msgspec.ValidationError("too many")
        return items


def _rare_batch(*, array_like: bool) -> Any:
    """A batch type with events as maps or arrays, and extra keys as raw bytes."""
    events = (
        _rare_event(BlockStored, num_required=5 if array_like else 7, array_like=array_like)
        | _rare_event(BlockRemoved, num_required=1 if array_like else 2, array_like=array_like)
        | _rare_event(AllBlocksCleared, num_required=0, array_like=array_like)
    )
    fields: list[Any] = [
        ("ts", float),
        ("events", Annotated[list[events], Meta(max_length=MAX_EVENTS)]),  # type: ignore[valid-type]  # made above
        ("data_parallel_rank", Annotated[int, Meta(ge=0)] | None, None),
    ]
    return msgspec.defstruct("_RareBatch", fields, array_like=True, gc=False)


def _rare_event(event: type[AnyEvent], *, num_required: int, array_like: bool) -> Any:
    """An event type with extra keys as raw bytes. As an array, the last fields may be missing, as older versions
    do not send them."""
    types = {"extra_keys": msgspec.Raw} | (_TYPES_WITH_SIGN if array_like else {})
    fields: list[Any] = [
        (field.name, types.get(field.name, field.type), *([] if index < num_required else [None]))
        for index, field in enumerate(msgspec.structs.fields(event))
    ]
    return msgspec.defstruct(event.__name__, fields, array_like=array_like, tag=event.__name__, gc=False)


_LOW_64_BITS = (1 << 64) - 1
_NULL = msgspec.Raw(b"\xc0")
_FIRST_BYTES_OF_BIN = frozenset({0xC4, 0xC5, 0xC6})
_FIRST_BYTES_OF_ARRAY = frozenset({*range(0x90, 0xA0), 0xDC, 0xDD})
_EVENTS: dict[str, Any] = {event.__name__: event for event in (BlockStored, BlockRemoved, AllBlocksCleared)}
_TYPES_WITH_SIGN: dict[str, Any] = {
    "block_hashes": Annotated[list[int | bytes], Meta(max_length=MAX_HASHES)],
    "parent_block_hash": int | bytes | None,
}

# Made once, since making one takes longer than a call. They keep no state, so threads may share them.
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(KVEventBatch)
_PLAN_DECODER = msgspec.msgpack.Decoder(PublishedPlan)
_SEQUENCE_DECODER = msgspec.msgpack.Decoder(Annotated[int, Meta(ge=0)])
_ARRAYS_DECODER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_rare_batch(array_like=True))
_MAPS_DECODER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_rare_batch(array_like=False))
_ITEMS_DECODER: msgspec.msgpack.Decoder[list[msgspec.Raw]] = msgspec.msgpack.Decoder(
    Annotated[list[msgspec.Raw], Meta(max_length=_MAX_RARE_EXTRA_KEYS)]
)
_BYTES_DECODER = msgspec.msgpack.Decoder(bytes)
_SCALAR_DECODER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(str | int | float | bool | None)
