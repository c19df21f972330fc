"""`Quotas`: how many bytes of a tenant are kept below the device, and which of its chunks make room for new ones.

A chunk counts once, whichever media have it, until it makes room; so a tenant never has more than its quota, and may
have less where media gave up chunks of their own accord. The least recently used make room, of a sequence the deepest
first. What does not fit even then is not stored.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from octavo.chunks import OffloadKey


class OwnedChunk(NamedTuple):
    """A chunk of a tenant."""

    key: OffloadKey
    tenant: bytes
    num_bytes: int


class Quotas:
    """The chunks of tenants that have a quota. Chunks of other tenants are ignored."""

    def __init__(self, bytes_by_tenant: Mapping[bytes, int]) -> None:
        self.bytes_by_tenant = dict(bytes_by_tenant)
        self._tenant_of: dict[OffloadKey, bytes] = {}
        self._chunks: dict[bytes, OrderedDict[OffloadKey, int]] = {}
        """Tenant -> key -> bytes, the next one to make room first. A `dict` finds its first key slowly once many before
        it have gone."""
        self._used: dict[bytes, int] = {}
        self.clear()

    def __bool__(self) -> bool:
        return bool(self.bytes_by_tenant)

    def too_many(self, chunks: Iterable[OwnedChunk], beside: Iterable[OffloadKey] = ()) -> set[OffloadKey]:
        """The chunks, of those to be stored together, that exceed their tenant's quota, if the chunks `beside` are to
        stay. The first chunks of a sequence are worth most, so the last ones exceed it."""
        refused: set[OffloadKey] = set()
        coming = dict.fromkeys(self.bytes_by_tenant, 0)
        for key in set(beside) & self._tenant_of.keys():
            coming[self._tenant_of[key]] += self._chunks[self._tenant_of[key]][key]
        for key, tenant, num_bytes in chunks:
            if tenant in coming:
                coming[tenant] += num_bytes
                if coming[tenant] > self.bytes_by_tenant[tenant]:
                    refused.add(key)
        return refused

    def admit(self, chunks: Sequence[OwnedChunk]) -> list[OffloadKey]:
        """Admits chunks of one sequence, in its order, which all fit their quota. Returns the older chunks that must
        make room."""
        owned = [chunk for chunk in chunks if chunk.tenant in self.bytes_by_tenant]
        for chunk in owned:
            self._forget(chunk.key)
        for chunk in reversed(owned):
            self._chunks[chunk.tenant][chunk.key] = chunk.num_bytes
            self._tenant_of[chunk.key] = chunk.tenant
            self._used[chunk.tenant] += chunk.num_bytes
        gone: list[OffloadKey] = []
        for tenant in {chunk.tenant for chunk in owned}:
            own = self._chunks[tenant]
            while self._used[tenant] > self.bytes_by_tenant[tenant]:
                gone.append(next(iter(own)))
                self._forget(gone[-1])
        return gone

    def has_lost(self, key: OffloadKey, tenant: bytes) -> bool:
        """Whether the chunk has made room for another one since it was admitted."""
        return tenant in self.bytes_by_tenant and key not in self._tenant_of

    def touch(self, keys: Iterable[OffloadKey]) -> None:
        """A request uses these chunks, given in the order of its sequence."""
        for key in reversed(list(keys)):
            tenant = self._tenant_of.get(key)
            if tenant is not None:
                self._chunks[tenant].move_to_end(key)

    def used_bytes(self, tenant: bytes) -> int:
        return self._used[tenant]

    def clear(self) -> None:
        """Forgets everything."""
        self._tenant_of = {}
        self._chunks = {tenant: OrderedDict() for tenant in self.bytes_by_tenant}
        self._used = dict.fromkeys(self.bytes_by_tenant, 0)

    def _forget(self, key: OffloadKey) -> None:
        tenant = self._tenant_of.pop(key, None)
        if tenant is not None:
            self._used[tenant] -= self._chunks[tenant].pop(key)
