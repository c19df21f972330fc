"""`ChunkFinder`: where a chunk is: in memory, on its way there, or on a tier below."""

from collections.abc import Mapping, Sequence

from octavo.chunks import ChunkSizes, LookupResult, OffloadKey, WantedChunk
from octavo.host import NO_CHUNK, ResidentChunks
from octavo.offload.lower_tier import LowerTier
from octavo.offload.promotions import Promotions


class ChunkFinder:
    """Reads the state of others, and changes nothing."""

    def __init__(
        self,
        resident: ResidentChunks,
        storing: Mapping[OffloadKey, int],
        promotions: Promotions,
        lowers: Sequence[LowerTier],
        sizes: ChunkSizes,
    ) -> None:
        """`storing`: chunk -> the blocks that a store is bringing."""
        self._resident = resident
        self._storing = storing
        self._promotions = promotions
        self._lowers = lowers
        self._sizes = sizes

    def lookup(self, keys: Sequence[OffloadKey]) -> list[LookupResult]:
        """Where each chunk is. The answer is advice: only `prepare_load` pins chunks."""
        shards = self._resident.index.shards
        results = [LookupResult.HIT if key in shards[key[0]] else LookupResult.MISS for key in keys]
        if LookupResult.MISS in results:
            self._look_further(keys, results)
        return results

    def lookup_whole(self, chunks: Sequence[WantedChunk]) -> list[LookupResult]:
        """Like `lookup`, but a chunk in memory is HIT only with all wanted blocks."""
        keys = [chunk.key for chunk in chunks]
        stands = self.lookup(keys)
        if self._resident.table.partial:
            held = self._resident.masks(keys)
            for index, wanted in enumerate(self._sizes.masks(chunks)):
                if stands[index] is LookupResult.HIT and wanted & ~held[index]:
                    is_coming = keys[index] in self._storing or keys[index] in self._promotions.reading
                    stands[index] = LookupResult.HIT_PENDING if is_coming else LookupResult.MISS
        return stands

    def held_blocks(self, keys: Sequence[OffloadKey]) -> list[int]:
        """Per key: the blocks that the nearest copy has, as ALL_BLOCKS or a bit mask (0b101: the first and the third),
        0 without a copy. The nearest copy is in memory, on its way there, or on the first tier that has it."""
        masks = self._resident.masks(keys)
        for index in [index for index, mask in enumerate(masks) if not mask]:
            masks[index] = self._storing.get(keys[index], 0) or self._promotions.reading.get(keys[index], 0)
        for lower in self._lowers:
            missing = [index for index, mask in enumerate(masks) if not mask]
            found = lower.masks([keys[index] for index in missing])
            for index, mask in zip(missing, found, strict=True):
                masks[index] = mask
        return masks

    def depths_of(self, keys: Sequence[OffloadKey]) -> dict[OffloadKey, int]:
        """For the keys that are found: the index in `media` of the medium that they come from."""
        depths: dict[OffloadKey, int] = {}
        missing = list(keys)
        sides: list[ResidentChunks | LowerTier] = [self._resident, *self._lowers]
        for depth, side in enumerate(sides):
            found = dict(zip(missing, side.masks(missing), strict=True))
            depths |= {key: depth for key, mask in found.items() if mask}
            missing = [key for key, mask in found.items() if not mask]
        return depths

    def missing(self, chunks: Sequence[WantedChunk]) -> tuple[list[int], list[int], list[OffloadKey]]:
        """The indices and wanted blocks of chunks that are neither there nor on their way, and the keys of those that
        are there."""
        storing, reading, table = self._storing, self._promotions.reading, self._resident.table
        keys = [chunk.key for chunk in chunks]
        masks = self._sizes.masks(chunks)
        heads = self._resident.index.find(keys)
        distinct = set(keys)
        if (
            len(distinct) == len(keys)
            and heads.count(NO_CHUNK) == len(keys)
            and distinct.isdisjoint(storing)
            and distinct.isdisjoint(reading)
        ):
            return list(range(len(keys))), masks, []  # all new, as mostly: nothing to look at one by one
        indices: list[int] = []
        there: list[OffloadKey] = []
        for index, (key, head, mask) in enumerate(zip(keys, heads, masks, strict=True)):
            if key in storing or key in reading or key not in distinct:
                continue
            distinct.discard(key)
            if head != NO_CHUNK and not mask & ~table.mask(head):
                there.append(key)
            else:
                indices.append(index)
        return indices, [masks[index] for index in indices], there

    def _look_further(self, keys: Sequence[OffloadKey], results: list[LookupResult]) -> None:
        """Replaces MISS by the answer for chunks that are on their way or on a tier below."""
        storing, promotions = self._storing, self._promotions
        missing: list[int] = []
        for index, result in enumerate(results):
            if result is LookupResult.MISS:
                key = keys[index]
                if key in storing or key in promotions.reading:
                    results[index] = LookupResult.HIT_PENDING
                elif self._lowers:
                    missing.append(index)
        for lower in self._lowers:
            found = lower.masks([keys[index] for index in missing])
            for index, mask in zip(missing, found, strict=True):
                if mask:
                    results[index] = LookupResult.RETRY
