"""`RecordShape`: what a compressor keeps. It makes one record of a pool of tokens, for attention or for an indexer."""

from dataclasses import dataclass

import torch

from octavo.engine.torch_dtypes import cache_dtype
from octavo.specs import CircularBufferSpec, KVCacheSpec, MLAAttentionSpec, SlidingWindowMLASpec, ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordShape:
    """The records of one layer and name, and what is kept of the tokens that some record is still to be made of."""

    size: int
    dtype: torch.dtype
    tokens_per_record: int
    open_size: int
    """Of a token: its vector and its gate, and where records overlap both for the next record too."""
    open_dtype: torch.dtype
    overlaps: bool
    """Whether a record is made of the pool before its own too."""

    def specs(self, block_size: int) -> tuple[KVCacheSpec, KVCacheSpec]:
        """Of the records, and of the tokens that wait for theirs."""
        whole_pools = ceil_div(block_size, self.tokens_per_record) * self.tokens_per_record
        records = MLAAttentionSpec(
            block_size=whole_pools,
            head_size=self.size,
            dtype=cache_dtype(self.dtype),
            tokens_per_state=self.tokens_per_record,
        )
        return records, self._open_spec(whole_pools)

    def _open_spec(self, whole_pools: int) -> KVCacheSpec:
        """Where a block ends no pool is open, but the next record may need the last pool."""
        dtype = cache_dtype(self.open_dtype)
        if self.overlaps:
            return SlidingWindowMLASpec(
                block_size=whole_pools,
                head_size=self.open_size,
                dtype=dtype,
                sliding_window=2 * self.tokens_per_record,
            )
        return CircularBufferSpec(
            block_size=whole_pools,
            num_kv_heads=1,
            head_size=self.open_size,
            dtype=dtype,
            tokens_per_state=self.tokens_per_record,
        )
