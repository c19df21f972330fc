"""`skim_batch`: a batch without its tokens, for readers that only count blocks.

Tokens are most of a payload, and making numbers of them is most of decoding. Of an event's tokens it tells whether
there are any. Everything else is checked as `decode_batch` checks it, and what is not usual is left to `decode_batch`.
So both give one view of what the publisher holds, of any payload. One difference is left: `decode_batch` refuses tokens
that are no numbers, which nobody has read here.
"""

from math import isfinite
from typing import Any

import msgspec

from octavo.errors import MALFORMED
from octavo.events.messages import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch
from octavo.events.wire import DEFAULT_LIMITS, WireLimits, decode_batch


def skim_batch(payload: bytes | bytearray | memoryview, *, limits: WireLimits = DEFAULT_LIMITS) -> KVEventBatch:
    """The batch of a payload frame; its tokens are true or false. WireError as `decode_batch` says it."""
    if len(payload) <= min(limits.bytes_that_need_no_count, limits.max_payload_bytes):
        try:
            batch = _DECODER.decode(payload)
        except MALFORMED:
            return decode_batch(payload, limits=limits)
        if batch.plan is batch.whole_since is None and isfinite(batch.ts) and len(batch.events) <= limits.max_events:
            return KVEventBatch(ts=batch.ts, events=batch.events, data_parallel_rank=batch.data_parallel_rank)
    return decode_batch(payload, limits=limits)


class _SkippedTokens(msgspec.Struct, array_like=True, gc=False):
    """An array of which the decoder reads the first element and skips the others."""

    first: int | msgspec.UnsetType = msgspec.UNSET

    def __bool__(self) -> bool:
        return self.first is not msgspec.UNSET


def _skimmed_batch() -> Any:
    """The batch's type, with other types for some fields. Extra keys, which are rare, are left to `decode_batch`."""
    others: list[Any] = [("token_ids", _SkippedTokens), ("extra_keys", None, None)]
    stored: Any = msgspec.defstruct(
        "BlockStored", others, bases=(BlockStored,), kw_only=True, tag="BlockStored", gc=False
    )
    types = {
        "events": list[stored | BlockRemoved | AllBlocksCleared],
        "plan": msgspec.Raw | None,
        "whole_since": msgspec.Raw | None,
    }
    fields: list[Any] = [
        (field.name, types.get(field.name, field.type), *([] if field.required else [None]))
        for field in msgspec.structs.fields(KVEventBatch)
    ]
    return msgspec.defstruct("_SkimmedBatch", fields, array_like=True, gc=False)


_DECODER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_skimmed_batch())
