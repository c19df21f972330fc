"""A batch that is skimmed and one that is decoded in full, side by side."""

import msgspec

from octavo.errors import WireError
from octavo.events import BlockStored, HeldBlocks, KVEventBatch, decode_batch, encode_batch, skim_batch
from octavo.specs import CacheDType, FullAttentionSpec, MambaSpec, SlidingWindowSpec

HEADS = {"num_kv_heads": 1, "head_size": 8}
SPECS = [
    FullAttentionSpec(block_size=16, **HEADS),
    SlidingWindowSpec(block_size=32, sliding_window=64, **HEADS),
    MambaSpec(block_size=16, shapes=((4,),), dtypes=(CacheDType.FLOAT32,)),
]


def view_of(batch: KVEventBatch) -> object:
    """All that is known of a publisher that told the batch, and told it again, as counted copies show then."""
    blocks = HeldBlocks(SPECS, hash_block_size=16)
    holder = blocks.add_holder()
    blocks.apply(holder, batch.events)
    blocks.apply(holder, batch.events)
    counts = holder.num_blocks_on, holder.num_dropped_events, holder.is_complete
    return batch.ts, batch.data_parallel_rank, batch.plan, counts, blocks.as_events(holder)


def check_skimmed(payload: bytes) -> KVEventBatch | None:
    """The batch, if it is one. Both ways see the same, unless tokens are what is wrong, as one of them skips these."""
    try:
        batch, problem = decode_batch(payload), ""
    except WireError as error:
        batch, problem = None, str(error)
    try:
        skimmed = skim_batch(payload)
    except WireError as error:
        refused = str(error)
        assert (batch, problem) == (None, refused)
        return None
    if batch is None:
        assert ".token_ids[" in problem
        with_tokens = [_with_a_token(event) if isinstance(event, BlockStored) else event for event in skimmed.events]
        batch = decode_batch(encode_batch(msgspec.structs.replace(skimmed, events=with_tokens)))
        assert view_of(skimmed) == view_of(batch)
        return None
    assert view_of(skimmed) == view_of(batch)
    return batch


def _with_a_token(event: BlockStored) -> BlockStored:
    values = {name: getattr(event, name) for name in BlockStored.__struct_fields__}
    return BlockStored(**values | {"token_ids": [1] if event.token_ids else []})
