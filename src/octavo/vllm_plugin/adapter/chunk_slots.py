"""What a transfer names on the host's side; it travels from the scheduler to all ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

from vllm.v1.kv_offload.base import LoadStoreSpec

from octavo.ids import Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSlots(LoadStoreSpec):
    """The slots of each chunk of a job, in the order of its keys."""

    groups: Sequence[int]
    """By chunk, in vLLM's numbering."""
    slots: Sequence[Sequence[Slot]]
    is_checked: Sequence[bool]
    """By chunk of a load: whether its bytes must give the checksum that each rank noted when it stored them. Chunks
    that came from a tier were verified when they came."""
    arena_slots: int
    """How many the arena has: a rank needs it once, to find them, and `pages`, to know its share."""
    pages: Sequence[tuple[int, bool]]
    """By group in vLLM's numbering: bytes of a block of all ranks, and whether these are the ranks' side by side."""
