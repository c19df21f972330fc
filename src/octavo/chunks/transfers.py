"""Chunks that move: between device pages and host slots, and between host memory and a tier.

A *chunk* is one or more blocks of one group. In host memory it lies in equal slots of one arena, as many as its bytes
need, anywhere; its bytes are those of its held blocks, one after the other, and a block's bytes are those of the
group's canonical pages (`CanonicalKVCacheRef`s), in order:

    chunk   [block 0: ref 0 | ref 1 | ...][block 1: ...]      only blocks of `held_blocks`
    slots   [slot 7          ][slot 3          ][slot 12 .... ]    the last one is filled in part
"""

from collections.abc import Sequence
from typing import NamedTuple

from octavo.chunks.keys import OffloadKey
from octavo.chunks.tenants import NO_TENANT
from octavo.ids import GroupIdx, Row, Slot

Buffers = Sequence[memoryview]
"""A chunk's bytes in host memory: writable, contiguous pieces, in order."""


class ChunkCopy(NamedTuple):
    """One chunk between device pages and host slots."""

    group_idx: GroupIdx
    rows: Sequence[Row]
    """Device rows, in the order of the chunk's held blocks. A load may name fewer blocks than the chunk holds: those it
    does not want have row -1."""
    slots: Sequence[Slot]
    checksum: int | None = None
    """Of a load that is to be verified: what the bytes in the slots must give, or the chunk fails, and by then none of
    them is on the device any more."""


class TransferResult(NamedTuple):
    """The end of a transfer. Chunks that failed have changed nothing that counts: a store's slots hold nothing, a
    load's device rows hold bytes that nobody may read."""

    job_id: int
    failed: frozenset[int]
    """Indices of chunks in the job."""
    checksums: Sequence[int] = ()
    """Of a store, by index, if the worker was made to take them."""
    seconds: float | None = None
    """How long the bytes took. Not how long it was until somebody asked: a copy that ends in the middle of a step is
    seen at the step's end. None where nobody measured."""


class ChunkBytes(NamedTuple):
    """One chunk of a job."""

    key: OffloadKey
    buffers: Buffers
    """Their total length is the chunk's."""
    held_blocks: int
    """Which of its blocks the chunk has, as a bit mask, or ALL_BLOCKS. A load returns only what was stored under the
    same mask and length; anything else is a failure."""
    checksum: int | None = None
    """Of a store: the xxh3_64 of its bytes when they came to host memory. Where the tier's copy of them gives another,
    memory went wrong since, and the store of this chunk fails."""
    tenant: bytes = NO_TENANT
    """Of a store: who has stored it, so that a tenant's chunks can be cleared."""


class TierResult(NamedTuple):
    """The end of a job."""

    job_id: int
    failed: frozenset[int]
    """Indices of chunks in the job. A failed load may have written to its buffers; a store that did not fail
    is accepted: it will be found by `lookup`, and is durable when the tier's guarantee says so."""
    seconds: float | None = None
    """From `submit` to the job's end, which may be before somebody asked; None where nobody measured."""
