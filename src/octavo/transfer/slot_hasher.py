"""The checksums of what lies in slots."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64, xxh3_64_intdigest

from octavo.errors import TransferError
from octavo.transfer.copy_plan import ChunkBatch


class SlotHasher:
    """Hashes chunks over their bytes in the arena, in order. Any thread may call it."""

    def __init__(self, slots: npt.NDArray[np.uint8]) -> None:
        self._arena = flat_arena(slots).data
        self._slot_bytes = slots.shape[1]

    def checksums(self, batch: ChunkBatch, slots_by_chunk: Sequence[Sequence[int]]) -> list[int]:
        """Those of some chunks of the batch."""
        arena, slot_bytes, num_bytes = self._arena, self._slot_bytes, batch.chunk_bytes
        if batch.has_neighbouring_slots:
            starts = [slots[0] * slot_bytes for slots in slots_by_chunk]
            return [xxh3_64_intdigest(arena[start : start + num_bytes]) for start in starts]
        checksums = []
        for slots in slots_by_chunk:
            digest, left = xxh3_64(), num_bytes
            for slot in slots:
                start = slot * slot_bytes
                digest.update(arena[start : start + min(left, slot_bytes)])
                left -= slot_bytes
            checksums.append(digest.intdigest())
        return checksums


def flat_arena(slots: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """All bytes of an arena; TransferError if they are not one piece."""
    if slots.dtype != np.uint8 or slots.ndim != 2 or not slots.flags.c_contiguous:
        raise TransferError(
            f"an arena is one piece of uint8 (num_slots, slot_bytes), not {slots.dtype} {slots.shape}, "
            f"strides {slots.strides}"
        )
    return slots.reshape(-1)
