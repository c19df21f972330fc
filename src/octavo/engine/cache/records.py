"""`Records`: what one layer keeps of one kind of records in one step."""

import torch

from octavo.engine.cache.layer_pages import IndexPages, OpenPages
from octavo.engine.cache.record_reads import RecordReads
from octavo.engine.cache.record_step import RecordStep


class Records:
    """A compressor hands in what records are made of, for all tokens of the packed row; it gets what is to be made into
    records now, and hands these in too. From then on they are read."""

    def __init__(self, pages: IndexPages, open_pages: OpenPages, step: RecordStep) -> None:
        self.step = step
        self._pages, self._open = pages, open_pages

    def exchange_open(self, vectors: torch.Tensor, gates: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keeps vectors and gates (tokens of the packed row, size) for later steps, and returns those of all pools to
        be made now, one pool after the other. A blank token has a gate of minus infinity, so it counts nothing."""
        step, new = self.step, torch.cat([vectors, gates], -1)
        blank = torch.cat([torch.zeros_like(vectors[:1]), torch.full_like(gates[:1], -torch.inf)], -1)
        known = torch.cat([self._open.read_open(step.old.rows, step.old.slots), new, blank])
        self._open.write_open(step.open.rows, step.open.slots, new[step.open_tokens])
        made_of = known[step.made_of]
        return made_of[:, : vectors.shape[-1]], made_of[:, vectors.shape[-1] :]

    def keep(self, made: torch.Tensor) -> None:
        """Keeps the new ones among what was made (pools, size)."""
        step = self.step
        self._pages.write_keys(step.records.rows, step.records.slots, made[step.new_pools])

    def read(self, reads: RecordReads) -> torch.Tensor:
        """(sequences, records, size)"""
        return self._pages.gather_joined(reads.rows, reads.num_sequences)
