"""The checksums of what lies in slots."""

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64, xxh3_64_intdigest

from octavo.errors import TransferError
from octavo.transfer.copy_plan import ChunkBatch
from octavo.transfer.helper import Helper

PART_BYTES = 2 << 20
"""Chunks that a thread takes of a job at a time. A smaller job is not shared: to wake a thread would cost it more."""
_MOST_HASHING = 4


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


class SharedHasher:
    """Hashes batches on several threads, if they are large."""

    def __init__(self, slots: npt.NDArray[np.uint8]) -> None:
        self._hasher = SlotHasher(slots)
        num_threads = min(_MOST_HASHING, max(2, len(os.sched_getaffinity(0)) // 4))
        self._helper = Helper("octavo-hash-helper", num_threads - 1)

    def checksums(self, batch: ChunkBatch) -> list[int]:
        slots, checksums = batch.slots.tolist(), [0] * len(batch.indices)
        step = max(1, PART_BYTES // batch.chunk_bytes)

        def hash_some(first: int) -> None:
            checksums[first : first + step] = self._hasher.checksums(batch, slots[first : first + step])

        self._helper.share(hash_some, range(0, len(slots), step))
        return checksums

    def close(self) -> None:
        self._helper.close()


def flat_arena(slots: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """All bytes of an arena; TransferError if they are not one piece."""
    if slots.dtype != np.uint8 or slots.ndim != 2 or not slots.flags.c_contiguous:
        raise TransferError(
            f"an arena is one piece of uint8 (num_slots, slot_bytes), not {slots.dtype} {slots.shape}, "
            f"strides {slots.strides}"
        )
    return slots.reshape(-1)
