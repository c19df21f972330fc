"""`Retentions`: which resume points memory's policy is to weigh, until when, and what tenants may have of that.

A retained point counts for 16 times as much at first, and less and less until its time is over. So it outlives others,
and is still given up when nothing else is left, or when nobody uses it for long. What a tenant retains is at most its
share of memory; a block that several of its points need counts once.
"""

from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from octavo.chunks import HintKind, HintOutcome, OffloadKey
from octavo.ids import BlockHash
from octavo.policies import EvictionPolicy

RETAIN_SHARE = 0.25
"""The part of memory that one tenant may retain by default."""
_MOST_WEIGHT = 16.0
_MOST_POINTS = 1024
"""The most retained points. Further ones are refused, unless another tenant has more of them than the asker."""
_MOST_DEMOTED = 1024
"""The most demoted points that are remembered. Beyond that the oldest gets its usual weight back."""
_WEIGH_EVERY_S = 1.0


@dataclass(slots=True, kw_only=True)
class _Retention:
    tenant: bytes
    keys: Collection[OffloadKey]
    lifetime_s: float
    until: float
    was_kept: bool = False
    """Whether memory was seen to have the point."""

    def weight(self, now: float) -> float:
        left = max(0.0, self.until - now)
        return 1.0 + (_MOST_WEIGHT - 1.0) * left / self.lifetime_s


class Retentions:
    """Retained and demoted points, by the hash of their last block. It has no clock: the caller tells the time."""

    def __init__(self, policy: EvictionPolicy, most_bytes: int) -> None:
        """`most_bytes`: what one tenant may retain; 0 if memory keeps nothing."""
        self._policy = policy
        self._most_bytes = most_bytes
        self._points: dict[BlockHash, _Retention] = {}
        self._shares: dict[bytes, _Share] = {}
        """Tenant -> share, of tenants that retain something."""
        self._demoted: deque[BlockHash] = deque()
        self._weigh_at = 0.0
        self.outcomes: Counter[tuple[HintKind, HintOutcome]] = Counter()

    def __contains__(self, block_hash: BlockHash) -> bool:
        return block_hash in self._points

    def __len__(self) -> int:
        return len(self._points)

    def retained_bytes(self, tenant: bytes) -> int:
        """What the tenant's points need together."""
        return self._shares[tenant].num_bytes if tenant in self._shares else 0

    def retain(
        self, block_hash: BlockHash, sizes: Mapping[OffloadKey, int], tenant: bytes, lifetime_s: float, now: float
    ) -> HintOutcome:
        """Gives the point more weight from now on, or again if it had it already. `sizes`: the bytes of each block that
        a resume there needs, in all groups. A point that is refused changes nothing of those that are kept."""
        outcome = self._retain(block_hash, sizes, tenant, lifetime_s, now) if sizes else HintOutcome.NO_POINT
        return self._count(HintKind.RETAIN, outcome)

    def _retain(
        self, block_hash: BlockHash, sizes: Mapping[OffloadKey, int], tenant: bytes, lifetime_s: float, now: float
    ) -> HintOutcome:
        known = self._points.get(block_hash)
        if known is not None:
            if known.until < now + lifetime_s:
                known.lifetime_s, known.until = lifetime_s, now + lifetime_s
            self._policy.weigh(block_hash, known.weight(now))
            return HintOutcome.TAKEN
        if not self._most_bytes:
            return HintOutcome.UNHEEDED
        refusal = self._refusal(tenant, sizes)
        if refusal is not None and self._end_gone():
            refusal = self._refusal(tenant, sizes)
        if refusal is HintOutcome.TOO_MANY and self._end_one_of_most(tenant):
            refusal = None
        if refusal is not None:
            return refusal
        if not self._policy.weigh(block_hash, _MOST_WEIGHT):
            return HintOutcome.UNHEEDED
        self._shares.setdefault(tenant, _Share()).add(sizes)
        self._points[block_hash] = _Retention(
            tenant=tenant, keys=tuple(sizes), lifetime_s=lifetime_s, until=now + lifetime_s
        )
        return HintOutcome.TAKEN

    def release(self, hashes: Collection[BlockHash]) -> None:
        """Gives those of these points that are retained their usual weight."""
        released = [block_hash for block_hash in self._points if block_hash in hashes]
        self._count(HintKind.RELEASE, HintOutcome.TAKEN if released else HintOutcome.NO_POINT)
        for block_hash in released:
            self._end(block_hash)

    def demote(self, block_hash: BlockHash) -> HintOutcome:
        """Makes memory give up the point first, unless a request retains or uses it."""
        return self._count(HintKind.DEMOTE, self._demote(block_hash))

    def _demote(self, block_hash: BlockHash) -> HintOutcome:
        if block_hash in self._points:
            return HintOutcome.UNHEEDED
        if not self._policy.weigh(block_hash, 0.0):
            return HintOutcome.UNHEEDED
        self._demoted.append(block_hash)
        if len(self._demoted) > _MOST_DEMOTED:
            oldest = self._demoted.popleft()
            if oldest not in self._points and oldest not in self._demoted:
                self._policy.weigh(oldest, 1.0)
        return HintOutcome.TAKEN

    def note(self, kind: HintKind, outcome: HintOutcome) -> None:
        """Counts another outcome of a hint."""
        self._count(kind, outcome)

    def poll(self, now: float) -> None:
        """Now and then: lowers the weights, and ends those whose time is over."""
        if not self._points or now < self._weigh_at:
            return
        self._weigh_at = now + _WEIGH_EVERY_S
        for block_hash in [key for key, retention in self._points.items() if retention.until <= now]:
            self._end(block_hash)
        for block_hash, retention in self._points.items():
            self._policy.weigh(block_hash, retention.weight(now))
            retention.was_kept = retention.was_kept or self._policy.keeps(block_hash)

    def clear(self) -> None:
        """Everything was forgotten; the policy has forgotten its weights."""
        self._points.clear()
        self._shares.clear()
        self._demoted.clear()

    def _refusal(self, tenant: bytes, sizes: Mapping[OffloadKey, int]) -> HintOutcome | None:
        share = self._shares.get(tenant) or _Share()
        if share.num_bytes_with(sizes) > self._most_bytes:
            return HintOutcome.QUOTA
        return HintOutcome.TOO_MANY if len(self._points) >= _MOST_POINTS else None

    def _end_one_of_most(self, tenant: bytes) -> bool:
        """Of the tenant that has the most points, ends the one whose time is over first, if that tenant has more than
        this one would have. Whether it did: nobody keeps all places to itself."""
        owner, share = max(self._shares.items(), key=lambda owned: owned[1].num_points)
        own = self._shares.get(tenant) or _Share()
        if share.num_points <= own.num_points + 1:
            return False
        points = [key for key, point in self._points.items() if point.tenant == owner]
        self._end(min(points, key=lambda key: self._points[key].until))
        return True

    def _end_gone(self) -> bool:
        """Ends the points that memory had and gave up, as they are in the way of others. Whether there were any."""
        gone = [key for key, point in self._points.items() if point.was_kept and not self._policy.keeps(key)]
        for block_hash in gone:
            self._end(block_hash)
        return bool(gone)

    def _end(self, block_hash: BlockHash) -> None:
        retention = self._points.pop(block_hash)
        share = self._shares[retention.tenant]
        share.remove(retention.keys)
        if not share.num_bytes:
            del self._shares[retention.tenant]
        self._policy.weigh(block_hash, 1.0)

    def _count(self, kind: HintKind, outcome: HintOutcome) -> HintOutcome:
        self.outcomes[kind, outcome] += 1
        return outcome

    def check_invariants(self) -> None:
        """For tests: the shares are the sums of what the points need."""
        for tenant, share in self._shares.items():
            own = [point for point in self._points.values() if point.tenant == tenant]
            assert share.num_points == len(own)
            assert share.counts == Counter(key for point in own for key in point.keys)
            assert share.num_bytes == sum(share.sizes[key] for key in share.counts) <= self._most_bytes
        assert {point.tenant for point in self._points.values()} == self._shares.keys()
        assert len(self._points) <= _MOST_POINTS


class _Share:
    """The blocks that one tenant retains, each counted once."""

    def __init__(self) -> None:
        self.counts: Counter[OffloadKey] = Counter()
        """Block -> the number of points that need it."""
        self.sizes: dict[OffloadKey, int] = {}
        self.num_bytes = 0
        self.num_points = 0

    def num_bytes_with(self, sizes: Mapping[OffloadKey, int]) -> int:
        return self.num_bytes + sum(size for key, size in sizes.items() if key not in self.sizes)

    def add(self, sizes: Mapping[OffloadKey, int]) -> None:
        self.num_points += 1
        self.num_bytes = self.num_bytes_with(sizes)
        self.sizes.update(sizes)
        self.counts.update(sizes.keys())

    def remove(self, keys: Collection[OffloadKey]) -> None:
        self.num_points -= 1
        for key in keys:
            self.counts[key] -= 1
            if not self.counts[key]:
                del self.counts[key]
                self.num_bytes -= self.sizes.pop(key)
