"""`PooledReads`: what one layer's indexer keeps and reads in one step, if it makes one key of several tokens: a pool.

    tokens    0 1 2 3 | 4 5 6 7 | 8 9     pools of four; two tokens are open
    pages     key       key
    open                          8 9     in the request's one page, which is written again and again

What is kept of open tokens is what a key is made of.
"""

from collections.abc import Callable

import torch

from octavo.engine.cache.attention_step import AttentionStep
from octavo.engine.cache.index_reads import IndexReads
from octavo.engine.cache.layer_pages import IndexPages, OpenPages

MakeKeys = Callable[[torch.Tensor], torch.Tensor]
"""Vectors (pools, tokens of a pool, size) of tokens to keys (pools, size)."""


class PooledReads(IndexReads):
    """The keys of one layer's indexer. A call hands in what is known of its part's tokens, and gets the keys of all
    pools that the part sees. The last ones of a sequence may be open or padding, and hold anything."""

    def __init__(self, pages: IndexPages, open_pages: OpenPages, open_rows: torch.Tensor, step: AttentionStep) -> None:
        """`open_rows`: by token of the packed row, the page of its sequence's open tokens."""
        super().__init__(pages, step)
        self._open, self._open_rows = open_pages, open_rows
        self._pool, self._block_size = pages.tokens_per_key, pages.block_size

    def exchange_pools(self, vectors: torch.Tensor, make_keys: MakeKeys) -> torch.Tensor:
        """Keeps what is known (sequences, queries, size) of the part's tokens, and returns (sequences, pools, size)."""
        part, step = self._current, self._step
        if vectors.shape[1] == 1:
            self._close_by_one(part.tokens, vectors[:, 0], make_keys)
        else:
            self._close_by_run(part.tokens, vectors[0], make_keys)
        rows = part.rows
        if rows is None:
            rows = step.write_rows[part.first : part.tokens.stop : self._block_size]
        return self._pages.gather_joined(rows, part.num_sequences)[:, : part.mask.shape[-1] // self._pool]

    def _close_by_one(self, tokens: slice, vectors: torch.Tensor, make_keys: MakeKeys) -> None:
        """One token of each sequence. The key of a pool that stays open is made too, and made anew with its last."""
        rows, slots = self._open_rows[tokens], self._step.write_slots[tokens]
        self._open.write_open(rows, slots, vectors)
        first = slots // self._pool * self._pool
        in_pool = first[:, None] + torch.arange(self._pool, device=slots.device)
        keys = make_keys(self._open.read_open(rows[:, None], in_pool))
        self._pages.write_keys(self._step.write_rows[tokens], slots, keys)

    def _close_by_run(self, tokens: slice, vectors: torch.Tensor, make_keys: MakeKeys) -> None:
        """A run of one sequence's tokens, behind those that were open before."""
        rows, slots = self._open_rows[tokens], self._step.write_slots[tokens]
        num_before = int(slots[0]) % self._pool
        before = self._open.read_open(rows[:1], slots[:1] - torch.arange(num_before, 0, -1, device=slots.device))
        known = torch.cat([before, vectors])
        num_pools = len(known) // self._pool
        last = slice(tokens.start + self._pool - 1 - num_before, tokens.stop, self._pool)
        if num_pools:
            keys = make_keys(known[: num_pools * self._pool].view(num_pools, self._pool, -1))
            self._pages.write_keys(self._step.write_rows[last], self._step.write_slots[last], keys)
        # More than those that are open: the last tokens may be drafts, without which an earlier pool is open again.
        kept = slice(max(0, len(vectors) - self._block_size), None)
        self._open.write_open(rows[kept], slots[kept], vectors[kept])
