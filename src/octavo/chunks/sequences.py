"""A whole sequence by the names of its chunks, for media that must be asked ahead."""

from collections.abc import Sequence
from typing import NamedTuple

from octavo.chunks.keys import OffloadKey


class ChunkChain(NamedTuple):
    """The names of one group's chunks along one sequence, from its start."""

    tokens_per_block: int
    keys: Sequence[OffloadKey]
    """By block: the name of a chunk that ends with it. It may grow."""
    is_prefix: bool = True
    """Whether a resume needs all of them, from the first one on."""


class SequenceNames(NamedTuple):
    """One sequence: the names of the chunks of all groups, in the order of the groups."""

    tenant: bytes
    chains: Sequence[ChunkChain]

    @property
    def needs_beginning(self) -> bool:
        """Whether nothing is of use where the beginning is not. Windows and states alone need none."""
        return any(chain.is_prefix for chain in self.chains)
