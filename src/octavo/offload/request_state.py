"""What offloading knows of one request: the names of its chunks, and how far its load is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from octavo.chunks import (
    ALL_BLOCKS,
    NO_TENANT,
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
        name: Callable[[OffloadKey, Sequence[BlockHash]], None] | None = None,
        tenant: bytes = NO_TENANT,
    ) -> None:
        """`name` is told the blocks of each chunk of several blocks that is wanted."""
        self.config = config
        self.group_idx = group_idx
        self.blocks_per_chunk = config.blocks_per_chunk
        self.hashes = hashes
        """Of the request's full blocks; it grows."""
        self._keys: list[OffloadKey] = []
        self._name = name
        self.tenant = tenant
        self._suffix = make_offload_key(BlockHash(b""), group_idx)

    @property
    def keys(self) -> Sequence[OffloadKey]:
        """By block: the name of a chunk that ends with it."""
        keys, suffix = self._keys, self._suffix
        if len(keys) < len(self.hashes):
            keys += [OffloadKey(block_hash + suffix) for block_hash in self.hashes[len(keys) :]]
        return keys

    def ends_of_chunk(self, first_block: int) -> range:
        """The blocks that may be the last of a chunk, the farthest first."""
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


@dataclass(slots=True, kw_only=True)
class RequestOffloadState:
    """What offloading knows of one request."""

    request: OffloadedRequest
    groups: list[RequestGroupState]
    deadline: float
    answers_until: float | None = None
    """How long it waits for tiers that are still to say what they have of it; None: it was not looked at yet."""
    renewals_left: int | None = None
    """How often progress may still move the deadline; None: nothing was planned yet."""
    phase: LoadPhase = LoadPhase.NEW
    look_again_at: float = 0.0
    seen_epoch: int = -1
    """Of the loads, when it was last looked at: nothing has changed since if it is still that."""
    has_room: bool = True
    """Whether the device had room for the whole request when it was last looked at."""
    pages: HeldPages | None = None
    """Of a load that has ended: a loan until the request has started."""
    num_in_memory: int = 0
    """Chunks of its load that were in memory when it was last looked at: progress, which renews its patience."""
    num_device_tokens: int | None = None
    """Where it could have resumed before anything was loaded for it."""
    num_loaded_tokens: int = 0
    """By how much loads have moved its resume point."""
    depths: dict[OffloadKey, int] = field(default_factory=dict)
    """The chunks that it waited for, each with the index in the manager's `media` of what it lay on. In memory they no
    longer show it."""
    outlook: Outlook | None = None
    """What was chosen for it; None: nothing was, or there is nothing to choose."""
    is_late: bool = False
    """Whether it went on without what it had waited for."""
    load_ends_at: float | None = None
    """When what it loads was expected to be on the device, as it was chosen."""
    tokens_to_compute: int = MOST_TOKENS
    """As far as the choice tells."""
    was_counted: bool = False
    """Whether its resume has counted as a use. One that was preempted resumes from what it stored itself: no use."""
    resumed_tokens: int = 0
    """The resume point from which it began."""
    promised_tokens: int = 0
    """The last boundary that was promised for it."""
    stored_tokens: int = 0
    """The last boundary for which all was stored."""
    is_planned: bool = False
    """Whether its promises were planned with what the tiers have."""

    @property
    def tenant(self) -> bytes:
        return self.groups[0].tenant

    @property
    def names(self) -> SequenceNames:
        """As tiers are asked for it."""
        return SequenceNames(
            self.tenant, [ChunkChain(group.config.spec.block_size, group.keys) for group in self.groups]
        )
