"""`Tenants`: quotas of tenants, held over all media below the device."""

from collections.abc import Mapping, Sequence

from octavo.chunks import NO_TENANT, ChunkSizes, Leaving, OffloadKey, WantedChunk
from octavo.host import ResidentChunks
from octavo.offload.manager_values import Room
from octavo.offload.quotas import OwnedChunk, Quotas
from octavo.offload.tiers_below import TiersBelow


class Tenants:
    """Decides which chunks are refused and which are given up, so that no tenant exceeds its quota. It is false if no
    tenant has one."""

    def __init__(
        self, quotas: Mapping[bytes, int], sizes: ChunkSizes, resident: ResidentChunks, below: TiersBelow
    ) -> None:
        """Chunks that the tiers kept from earlier runs count too."""
        self.num_refused = 0
        self.num_evicted = 0
        self._quotas = Quotas(quotas)
        self._sizes = sizes
        self._resident = resident
        self._below = below
        for lower in below.lowers if quotas else ():
            for owned in lower.owned_by(quotas.keys()):
                self._make_room([OwnedChunk(*owned)])

    def __bool__(self) -> bool:
        return bool(self._quotas)

    def narrowed(self, room: Room, tenant: bytes) -> Room:
        """The part of a medium's room that the tenant's quota leaves. Nothing is begun that does not fit there, since
        its last chunks would push out its first ones."""
        quota = self._quotas.bytes_by_tenant.get(tenant)
        if quota is None or quota >= room.num_bytes:
            return room
        return Room(quota, 1 - self._quotas.used_bytes(tenant) / quota if quota else 0.0, is_memory=False)

    def fitting(
        self, chunks: Sequence[WantedChunk], indices: Sequence[int], masks: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        """The chunks at `indices`, with these blocks, that fit their tenants' quotas at all."""
        owned = [self._owned(chunks[index], mask) for index, mask in zip(indices, masks, strict=True)]
        refused = self._quotas.too_many(owned)
        self.num_refused += len(refused)
        fits = [chunk.key not in refused for chunk in owned]
        return (
            [index for index, is_in in zip(indices, fits, strict=True) if is_in],
            [mask for mask, is_in in zip(masks, fits, strict=True) if is_in],
        )

    def admit(self, chunks: Sequence[WantedChunk], masks: Sequence[int]) -> None:
        """These chunks fit and are being stored; older chunks of the same tenants make room for them."""
        if chunks:
            self._make_room([self._owned(chunk, mask) for chunk, mask in zip(chunks, masks, strict=True)])

    def admit_read(self, chunks: Sequence[WantedChunk], beside: Sequence[OffloadKey]) -> list[WantedChunk]:
        """The chunks, of those to be read into memory, that may be. Tiers that engines share have some that do not
        count yet, as others stored them: they count from now on. What does not fit is not found there any more.
        `beside` names chunks of the same request, which stay."""
        new = [chunk for chunk in chunks if self._quotas.has_lost(chunk.key, chunk.tenant)]
        if not new:
            return list(chunks)
        staying = [*beside, *(chunk.key for chunk in chunks)]
        self._quotas.touch(staying)
        owned = [self._owned(chunk, mask) for chunk, mask in zip(new, self._sizes.masks(new), strict=True)]
        refused = self._quotas.too_many(owned, staying)
        self._make_room([chunk for chunk in owned if chunk.key not in refused])
        if refused:
            self.num_refused += len(refused)
            self._below.remove(list(refused))
        return [chunk for chunk in chunks if chunk.key not in refused]

    def lost_indices(self, chunks: Sequence[WantedChunk]) -> list[int]:
        """The indices of stored chunks that made room for others while they were being stored."""
        return [index for index, chunk in enumerate(chunks) if self._quotas.has_lost(chunk.key, chunk.tenant)]

    def drop_lost(self, keys: Sequence[OffloadKey]) -> list[OffloadKey]:
        """Of chunks that were read into memory, those that may stay. The others made room for newer ones during the
        read."""
        owner_of, heads = self._resident.table.tenants, self._resident.index.find(keys)
        owners = [owner_of.get(head, NO_TENANT) for head in heads]
        lost = [key for key, owner in zip(keys, owners, strict=True) if self._quotas.has_lost(key, owner)]
        self._resident.drop(lost)
        return [key for key in keys if key not in lost]

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        self._quotas.touch(keys)

    def clear(self) -> None:
        """Forgets everything."""
        self._quotas.clear()

    def _owned(self, chunk: WantedChunk, mask: int) -> OwnedChunk:
        return OwnedChunk(chunk.key, chunk.tenant, self._sizes.num_bytes(chunk.key, mask))

    def _make_room(self, owned: Sequence[OwnedChunk]) -> None:
        """Removes these chunks from every medium below the device."""
        keys = self._quotas.admit(owned)
        self.num_evicted += len(keys)
        if keys:
            self._below.remove(keys)
            self._resident.drop(keys, Leaving.QUOTA)
