"""What offloading knows of one request: the names of its chunks, and the state of its load."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from octavo.chunks import (
    ALL_BLOCKS,
    ChunkChain,
    GroupOffloadConfig,
    OffloadKey,
    SequenceNames,
    WantedChunk,
    make_offload_key,
)
from octavo.ids import BlockHash, GroupIdx
from octavo.offload.device import HeldPages, OffloadedRequest
from octavo.offload.load_choice import Outlook

MOST_TOKENS = 1 << 40
"""More than any request has."""


class RequestGroupState:
    """One group of one request: the names of its chunks."""

    __slots__ = ("_keys", "_name", "_suffix", "blocks_per_chunk", "config", "group_idx", "hashes", "tenant")

    def __init__(
        self,
        config: GroupOffloadConfig,
        group_idx: GroupIdx,
        hashes: Sequence[BlockHash],
        name: Callable[[OffloadKey, Sequence[BlockHash]], None] | None,
        tenant: bytes,
    ) -> None:
        """`name` is told the blocks of each wanted chunk that has several blocks."""
        self.config = config
        self.group_idx = group_idx
        self.blocks_per_chunk = config.blocks_per_chunk
        self.hashes = hashes
        """The hashes of the request's full blocks; the list grows."""
        self._keys: list[OffloadKey] = []
        self._name = name
        self.tenant = tenant
        self._suffix = make_offload_key(BlockHash(b""), group_idx)

    @property
    def keys(self) -> Sequence[OffloadKey]:
        """Per block: the name of the chunk that ends with it."""
        keys, suffix = self._keys, self._suffix
        if len(keys) < len(self.hashes):
            keys += [OffloadKey(block_hash + suffix) for block_hash in self.hashes[len(keys) :]]
        return keys

    def ends_of_chunk(self, first_block: int) -> range:
        """The blocks with which a chunk may end, the farthest first."""
        stop = min(first_block + self.blocks_per_chunk, len(self.hashes))
        return range(stop - 1, first_block - 1, -1)

    def wanted_chunk(self, first_block: int, num_blocks: int, held_blocks: int) -> WantedChunk:
        """The chunk of blocks [first_block, first_block + num_blocks). `held_blocks` says which of them are wanted:
        0b101 is the first and the third."""
        keys, size = self.keys, self.blocks_per_chunk
        if self._name is not None and size > 1:
            self._name(keys[first_block + num_blocks - 1], self.hashes[first_block : first_block + num_blocks])
        return WantedChunk(
            keys[first_block + num_blocks - 1],
            first_block // size,
            keys[first_block - 1] if first_block else None,
            ALL_BLOCKS if held_blocks == (1 << size) - 1 else held_blocks,
            self.tenant,
        )


class LoadPhase(Enum):
    NEW = "new"
    LOADING = "loading"
    LOADED = "loaded"
    READY = "ready"


class Written(NamedTuple):
    """What is written for a boundary and for all promised points before it."""

    num_tokens: int
    num_bytes: int
    ends: Sequence[int]
    """Per group: the first block that is not counted yet."""


@dataclass(slots=True, kw_only=True)
class RequestOffloadState:
    """What offloading knows of one request."""

    request: OffloadedRequest
    groups: list[RequestGroupState]
    deadline: float
    answers_until: float | None = None
    """Until when it waits for tiers that have not yet said what they hold of it; None: it was not looked at yet."""
    renewals_left: int | None = None
    """How often progress may still move the deadline; None: nothing was planned yet."""
    phase: LoadPhase = LoadPhase.NEW
    look_again_at: float = 0.0
    seen_epoch: int = -1
    """The loader's epoch when the request was last looked at. Nothing has changed since if the epoch is still the
    same."""
    looked_at: float = 0.0
    """When the device was last seen to have what it needs."""
    tokens_there: int = 0
    """The resume point that the device alone had when it was found to need no load."""
    has_room: bool = True
    """Whether the device had room for the whole request when it was last looked at."""
    pages: HeldPages | None = None
    """The pages of a load that has ended, lent until the request has started."""
    num_in_memory: int = 0
    """The chunks of its load that were in memory when it was last looked at. More of them is progress, which renews the
    deadline."""
    num_device_tokens: int | None = None
    """The resume point before anything was loaded for it."""
    num_loaded_tokens: int = 0
    """How far loads have moved its resume point."""
    depths: dict[OffloadKey, int] = field(default_factory=dict)
    """The chunks that it waited for, each with the index in the manager's `media` of the medium that it came from. Once
    in memory a chunk no longer shows where it came from."""
    awaited: dict[OffloadKey, None] = field(default_factory=dict)
    """The chunks that it had promoted since it began to wait: they may be held for it."""
    outlook: Outlook | None = None
    """The choice between loading and computing; None: nothing was chosen yet, or there is nothing to choose."""
    is_late: bool = False
    """Whether it started without what it had waited for."""
    load_ends_at: float | None = None
    """When its load was expected to end, at the time of the choice."""
    tokens_to_compute: int = MOST_TOKENS
    """The tokens that it has to compute after the choice."""
    was_counted: bool = False
    """Whether its resume has counted as a use. A preempted request resumes from what it stored itself, which is no
    use."""
    resumed_tokens: int = 0
    """The resume point from which it started."""
    promised_tokens: int = 0
    """The last boundary that was promised for it."""
    promised_before: int = 0
    """The last boundary that was promised for it until it was preempted."""
    stored_tokens: int = 0
    """The last boundary for which all was stored."""
    written: list[Written] = field(default_factory=list)
    """For each promised point up to the last one that was asked for, ascending."""
    staged_at: int = 0
    """How much was computed when what fits of it was last planned from its beginning on."""
    is_planned: bool = False
    """Whether its promises were planned with the content of the tiers."""

    @property
    def tenant(self) -> bytes:
        return self.groups[0].tenant

    @property
    def names(self) -> SequenceNames:
        """The chunk names, in the form in which tiers are asked."""
        chains = [
            ChunkChain(group.config.spec.block_size, group.keys, group.config.spec.needs_whole_prefix)
            for group in self.groups
        ]
        return SequenceNames(self.tenant, chains)
