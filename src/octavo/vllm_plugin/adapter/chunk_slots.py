"""The host side of a transfer; it travels from the scheduler to all ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

from vllm.v1.kv_offload.base import LoadStoreSpec

from octavo.ids import Slot


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSlots(LoadStoreSpec):
    """The slots of each chunk of a job, in the order of its keys."""

    groups: Sequence[int]
    """Per chunk: its group, in vLLM's numbering."""
    slots: Sequence[Sequence[Slot]]
    is_checked: Sequence[bool]
    """Per chunk of a load: whether its bytes must have the checksum that each rank noted when it stored them. Chunks
    that came from a tier were verified on the way."""
    arena_slots: int
    """The number of slots of the arena. A rank needs it once, to find them, and `pages`, to know its share."""
    pages: Sequence[tuple[int, bool]]
    """Per group, in vLLM's numbering: the bytes of a block of all ranks, and whether these are the ranks' own pages
    side by side."""
