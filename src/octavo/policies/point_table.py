"""The resume points that a policy keeps: what each is worth, and which is given up first."""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from octavo.policies.point_queue import PointQueue, worth_class
from octavo.tables import Part, ShardedDict

UNLIKELY = 0.1
"""What a point's worth is multiplied by when it is not likely to be used: it is superseded, or only an end so far."""

_NOT_QUEUED = 127
_MAX_USES = (1 << 32) - 1


class Point(NamedTuple):
    """One resume point's record."""

    last_use: int
    """In slots stored until then."""
    num_tokens: int
    tokens_saved: int
    """Beyond the next point below that is itself likely to be used."""
    tokens_beyond: int
    """Beyond the next point below."""
    prefix_slots: int
    """Of the prefix groups' chunks that go when it and the superseded points below it go."""
    run_slots: int
    """Of other groups' chunks that only it needs."""
    num_uses: int = 0
    """Of its chain, as far as it does not fork."""
    class_: int = _NOT_QUEUED
    """Of its worth, in the queue."""
    is_end: bool = False
    """Not a full point: a prefix in one group."""
    is_superseded: bool = False

    @property
    def is_queued(self) -> bool:
        """Whether giving it up would free something."""
        return self.class_ != _NOT_QUEUED

    @property
    def worth(self) -> float:
        """Tokens saved per slot, weighed by how likely a use is."""
        tokens, slots = self.tokens_saved, self.prefix_slots + self.run_slots
        if self.is_superseded:
            tokens, slots = self.tokens_beyond, self.run_slots
        likelihood = UNLIKELY if self.is_superseded or self.is_end else 1.0
        return likelihood * (1 + self.num_uses) * tokens / max(1, slots)


_RECORD = Struct("<QQQQQQIb??")
"""A point is kept as bytes, which the garbage collector does not follow."""


class PointTable:
    """Points by name. Those whose end would free something wait in a queue to be given up."""

    def __init__(self) -> None:
        self._records = ShardedDict(b"")
        self._queue = PointQueue(lambda name: self[name].last_use)

    def parts(self) -> Sequence[Part]:
        return [*self._records.parts(), *self._queue.parts()]

    def __contains__(self, name: bytes) -> bool:
        return name in self._records

    def __getitem__(self, name: bytes) -> Point:
        return Point(*_RECORD.unpack(self._records.get(name)))

    def items(self) -> Iterator[tuple[bytes, Point]]:
        return ((name, self[name]) for name in self._records)

    def put(self, name: bytes, point: Point, *, is_queued: bool) -> None:
        """A new point, or a known one that changed: among those of equal worth the one used last."""
        if name in self:
            self._dequeue(name, self[name])
        class_ = worth_class(point.worth) if is_queued else _NOT_QUEUED
        uses = min(point.num_uses, _MAX_USES)
        self._records[name] = _RECORD.pack(*point._replace(class_=class_, num_uses=uses))
        if is_queued:
            self._queue.add(name, class_)

    def pop(self, name: bytes) -> Point:
        point = self[name]
        self._dequeue(name, point)
        self._records.pop(name)
        return point

    def worst(self, now: int) -> bytes | None:
        """The queued point that is worth least for its age."""
        return self._queue.worst(now)

    def _dequeue(self, name: bytes, point: Point) -> None:
        if point.is_queued:
            self._queue.remove(name, point.class_)

    def check_invariants(self) -> None:
        self._queue.check_invariants({name: point.class_ for name, point in self.items() if point.is_queued})
