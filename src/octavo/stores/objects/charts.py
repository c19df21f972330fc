"""`Charts`: the names under which the objects of a sequence are filed.

A sequence is cut into stretches of about 1,024 tokens, and these into eighths. An object holds chunks that end in one
stretch, and is filed under three blocks of the sequence, by their hashes:

    <first block of the stretch>/<first block of the eighth>/<block at which the object's last chunk ends>/<digest>

A reader knows the hashes of its own prompt only. One listing under the first block of a stretch shows all objects of
sequences that share this block; those on the reader's own sequence are told by the third name. Where thousands of
sequences part inside a stretch, the eighths are listed one by one, and where that is too much, the blocks.

Blocks are those of the group with the smallest ones. A chunk of another group is filed at the last such block that
ends where the chunk ends, or before.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from octavo.chunks import ChunkChain, OffloadKey, SequenceNames, get_offload_block_hash

_STRETCH_TOKENS = 1024
_EIGHTHS = 8
_NAME_BYTES = 16
_MOST_PLACED = 1 << 18


class Place(NamedTuple):
    """The name under which a chunk is filed, by the block where it ends."""

    position: int
    """The block's index in its sequence."""
    stretch: str
    eighth: str
    block: str


class Stretch(NamedTuple):
    """A part of a reader's sequence: what to list, and which names to look for."""

    name: str
    eighths: Sequence[str]
    blocks: Sequence[tuple[str, str]]
    """The eighth and the name of each block."""


class Charts:
    """Where chunks are filed, by key. The oldest entry is forgotten for a new one."""

    def __init__(self) -> None:
        self._places: OrderedDict[OffloadKey, Place] = OrderedDict()

    def find(self, key: OffloadKey) -> Place | None:
        return self._places.get(key)

    def chart(self, sequence: SequenceNames) -> None:
        """Notes where chunks of the sequence are filed, as far as that is not known yet."""
        main = _finest(sequence)
        if main is None:
            return
        for chain in sequence.chains:
            for index in range(len(chain.keys) - 1, -1, -1):
                key = chain.keys[index]
                if key in self._places:
                    break
                position = (index + 1) * chain.tokens_per_block // main.tokens_per_block - 1
                if position >= 0:
                    self._places[key] = _place(main, min(position, len(main.keys) - 1))
        while len(self._places) > _MOST_PLACED:
            self._places.popitem(last=False)


def stretches(sequence: SequenceNames) -> list[Stretch]:
    """The parts of a sequence, from its start."""
    main = _finest(sequence)
    if main is None:
        return []
    size, _ = _sizes(main)
    parts = []
    for start in range(0, len(main.keys), size):
        places = [_place(main, position) for position in range(start, min(start + size, len(main.keys)))]
        parts.append(
            Stretch(
                places[0].stretch,
                list(dict.fromkeys(place.eighth for place in places)),
                [(place.eighth, place.block) for place in places],
            )
        )
    return parts


def _finest(sequence: SequenceNames) -> ChunkChain | None:
    """The block hashes of the group with the smallest blocks; None for a sequence without blocks."""
    main = min(sequence.chains, key=lambda chain: chain.tokens_per_block, default=None)
    return main if main is not None and main.keys else None


def _sizes(main: ChunkChain) -> tuple[int, int]:
    """The blocks of a stretch, and of an eighth."""
    eighth = max(1, _STRETCH_TOKENS // _EIGHTHS // main.tokens_per_block)
    return eighth * _EIGHTHS if main.tokens_per_block * _EIGHTHS <= _STRETCH_TOKENS else eighth, eighth


def _place(main: ChunkChain, position: int) -> Place:
    size, eighth = _sizes(main)
    names = (
        get_offload_block_hash(main.keys[first])[-_NAME_BYTES:].hex()
        for first in (position // size * size, position // eighth * eighth, position)
    )
    return Place(position, *names)
