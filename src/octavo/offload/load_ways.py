"""What it takes to load chunks, by where they are, and which of those that were refused are read all the same."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from octavo.chunks import LookupResult, OffloadKey
from octavo.offload.load_choice import LoadChooser, Way
from octavo.offload.manager import OffloadingManager


class ChunkToLoad(NamedTuple):
    """A chunk that a request needs and the device lacks."""

    key: OffloadKey
    num_bytes: int
    stands: LookupResult | None
    """Where it is: `RETRY` below memory, `HIT_PENDING` on its way there for others."""


def way_to_load(
    chunks: Sequence[ChunkToLoad], manager: OffloadingManager, *, tokens_left: int, bytes_in_flight: int
) -> Way:
    """`tokens_left`: what is to compute beyond these chunks. `bytes_in_flight`: what is being copied to the device."""
    below = [chunk.key for chunk in chunks if chunk.stands is LookupResult.RETRY]
    depths = manager.depths_of(below) if below else {}
    to_read: Counter[int] = Counter()
    for chunk in chunks:
        if chunk.key in depths:
            to_read[depths[chunk.key]] += chunk.num_bytes
    waits_for_others = any(chunk.stands is LookupResult.HIT_PENDING for chunk in chunks)
    return Way(
        tokens_left=tokens_left,
        bytes_to_device=bytes_in_flight + sum(chunk.num_bytes for chunk in chunks),
        reading_s=manager.seconds_to_read(to_read, waits_for_others=waits_for_others),
        is_in_memory=not below and not waits_for_others,
    )


def keys_to_probe(refused: Sequence[ChunkToLoad], manager: OffloadingManager, chooser: LoadChooser) -> list[OffloadKey]:
    """The chunks below memory, of a load that was refused, that are read all the same: their tier is measured again."""
    below = [chunk for chunk in refused if chunk.stands is LookupResult.RETRY]
    depths = manager.depths_of([chunk.key for chunk in below])
    reads = [(depths.get(chunk.key, 0), chunk.num_bytes) for chunk in below]
    count = chooser.chunks_to_probe(reads, chooser.num_given_up, manager.seconds_to_read)
    return [chunk.key for chunk in below[:count]]
