"""Cuts many values into round trips of a bounded number."""

from collections.abc import Iterator, Sequence

from octavo.chunks import OffloadKey, SequenceNames

_FIRST_BLOCKS = 256
"""The blocks of each group in the first round trip; each further one asks for twice as many as all before it."""
_BATCH_VALUES = 4096


def waves(sequence: SequenceNames) -> Iterator[list[OffloadKey]]:
    """The keys of all groups up to the same token, from the start of the sequence, a round trip at a time."""
    tokens_per_block = min((chain.tokens_per_block for chain in sequence.chains if chain.keys), default=0)
    done, tokens = 0, _FIRST_BLOCKS * tokens_per_block
    while keys := [
        key
        for chain in sequence.chains
        for key in chain.keys[done // chain.tokens_per_block : tokens // chain.tokens_per_block]
    ]:
        yield keys
        done, tokens = tokens, 3 * tokens


def batches(num_bytes: Sequence[int], most_bytes: int) -> Iterator[list[int]]:
    """Indices, in order, of values that fit into one round trip. A value that is alone may be larger."""
    batch: list[int] = []
    total = 0
    for index, size in enumerate(num_bytes):
        if batch and (len(batch) == _BATCH_VALUES or total + size > most_bytes):
            yield batch
            batch, total = [], 0
        batch.append(index)
        total += size
    if batch:
        yield batch
