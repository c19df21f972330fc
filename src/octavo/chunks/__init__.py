"""Every word for a chunk: its key, its size, what requests ask for, what moves, and what changed.

Inside:

    keys, tenants         the name of a chunk; whose it is
    geometry              its bytes and slots
    wanted, sequences     what requests ask for, and policies see; a whole sequence by its chunks
    lookup                what a lookup answers
    transfers             what moves between device, host memory and tiers
    changes, departures   what came and went; what left, and why
    hints                 how long clients want resume points kept
"""

from octavo.chunks.changes import ChangeLog, MediumChanges, MediumPlace, OffloadChanges, TierChanges, changes_of_media
from octavo.chunks.departures import Departure, Departures, Leaving
from octavo.chunks.geometry import MOST_BLOCKS_PER_CHUNK, ChunkSizes, GroupOffloadConfig
from octavo.chunks.hints import Hint, HintKind, HintOutcome, read_lifetime
from octavo.chunks.keys import OffloadKey, get_offload_block_hash, get_offload_group_idx, group_keys, make_offload_key
from octavo.chunks.lookup import LookupResult
from octavo.chunks.sequences import ChunkChain, SequenceNames
from octavo.chunks.tenants import NO_TENANT, TENANT_BYTES, name_tenant
from octavo.chunks.transfers import Buffers, ChunkBytes, ChunkCopy, TierResult, TransferResult
from octavo.chunks.wanted import ALL_BLOCKS, PromisedPoint, StoredChunk, WantedChunk, stored_chunks

__all__ = [
    "ALL_BLOCKS",
    "MOST_BLOCKS_PER_CHUNK",
    "NO_TENANT",
    "TENANT_BYTES",
    "Buffers",
    "ChangeLog",
    "ChunkBytes",
    "ChunkChain",
    "ChunkCopy",
    "ChunkSizes",
    "Departure",
    "Departures",
    "GroupOffloadConfig",
    "Hint",
    "HintKind",
    "HintOutcome",
    "Leaving",
    "LookupResult",
    "MediumChanges",
    "MediumPlace",
    "OffloadChanges",
    "OffloadKey",
    "PromisedPoint",
    "SequenceNames",
    "StoredChunk",
    "TierChanges",
    "TierResult",
    "TransferResult",
    "WantedChunk",
    "changes_of_media",
    "get_offload_block_hash",
    "get_offload_group_idx",
    "group_keys",
    "make_offload_key",
    "name_tenant",
    "read_lifetime",
    "stored_chunks",
]
