"""The resume points that a policy keeps: what each is worth, and which is given up first."""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush, heapreplace
from itertools import islice

from octavo.policies.hazards import NUM_CLASSES, Hazards, Role
from octavo.policies.weighed_points import WeighedPoints
from octavo.tables import LinkedLists, Part

_DENSITIES = 16
_DENSITY_STEPS = [2 ** (step / 2 + 1.75) for step in range(1, _DENSITIES)]
"""The tokens per slot at which each density but the least begins."""
_QUEUES = NUM_CLASSES * _DENSITIES
_ALL = 0
_FREE, _PARKED, _WEIGHED, _NUM_LISTS = _QUEUES, _QUEUES + 1, _QUEUES + 2, _QUEUES + 3
_MOST_STEPS = 64
_MOST_PASSED = 256
"""The most points that one eviction passes over, in a millisecond or so."""
_LOOKS_PER_TURN = 128
"""How often all queues are looked at anew while the tier stores its capacity once."""


class PointTable:
    """Points by number. Points that would free something wait in queues by class and by tokens per slot, the one used
    longest ago first. Points with a weight wait apart (`WeighedPoints`).

    A point that would free nothing now, because others follow it or because it is being read, is parked when it comes
    to the front: a bounded number of them for one eviction, and then any other goes. `set_worth` and `was_read` bring
    it back."""

    def __init__(
        self,
        num_slots: int,
        num_units: int,
        frees_at_once: Callable[[int], bool],
        any_other: Callable[[], int],
        *,
        is_asked_by_use: bool,
    ) -> None:
        """`frees_at_once`: whether nobody reads what a point would free. `any_other`: a point of which that is true, as
        good as can be found soon; 0 if none is. `is_asked_by_use`: whether somebody will ask for the point used longest
        ago."""
        self.now = 0
        """The slots stored since the beginning; it serves as a clock."""
        self.hazards = Hazards(num_slots, num_units)
        self._num_slots, self._frees_at_once, self._any_other = num_slots, frees_at_once, any_other
        self._num_to_pass = 0
        """How many points may still be parked for the eviction that is under way."""
        self._look_every = max(1, num_slots // _LOOKS_PER_TURN)
        self._looked_at = -self._look_every
        self.names: list[bytes] = [b""] * _NUM_LISTS
        """Per point: the hash of its last block; for an end, the key of its last chunk."""
        self.is_end = array("b", bytes(_NUM_LISTS))
        """Per point: 1 for an end, which is a prefix in one group and not a full point."""
        self.num_tokens = array("q", bytes(8 * _NUM_LISTS))
        self.tokens_saved = array("q", bytes(8 * _NUM_LISTS))
        """Per point: its tokens beyond the next point below."""
        self.last_use = array("q", bytes(8 * _NUM_LISTS))
        self.freed = array("q", bytes(8 * _NUM_LISTS))
        """Per point: the slots that become free when it is given up and nobody reads them."""
        self.lives = array("q", bytes(8 * _NUM_LISTS))
        self.classes = array("b", bytes(_NUM_LISTS))
        self.roles = array("b", bytes(_NUM_LISTS))
        self.new_tokens = array("q", bytes(8 * _NUM_LISTS))
        self.is_followed = array("b", bytes(_NUM_LISTS))
        self.tips = array("i", bytes(4 * _NUM_LISTS))
        """Per point: the stretch that ends with it in its first group; 0 if that is no prefix group."""
        self._queue = array("i", bytes(4 * _NUM_LISTS))
        self._is_parked = array("b", bytes(_NUM_LISTS))
        self._lists = LinkedLists(_NUM_LISTS)
        self._by_use = LinkedLists(_NUM_LISTS) if is_asked_by_use else None
        """All points by their last use, except those that would free nothing and came to the front."""
        self._heads: list[tuple[float, int, int, int]] = []
        self._weighed = WeighedPoints(self, self.last_use)
        self._weights = self._weighed.weights

    def parts(self) -> Sequence[Part]:
        return [self.names]

    def __contains__(self, point: int) -> bool:
        return bool(self.names[point])

    def __iter__(self) -> Iterator[int]:
        return (point for point, name in enumerate(self.names) if name)

    def add(self, name: bytes, num_tokens: int, tip: int, *, is_end: bool) -> int:
        """Adds a point that waits nowhere until its first life begins."""
        point = self._lists.first(_FREE)
        if point is None:
            point = len(self.names)
            for column in (
                self.is_end,
                self.num_tokens,
                self.last_use,
                self.freed,
                self._is_parked,
                self.tokens_saved,
                self.lives,
                self.classes,
                self.is_followed,
                self._queue,
                self.roles,
                self.new_tokens,
                self.tips,
            ):
                column.append(0)
            self.names.append(b"")
            self._lists.grow()
            if self._by_use is not None:
                self._by_use.grow()
        else:
            self._lists.remove(point)
        self.names[point], self.is_end[point] = name, is_end
        self.num_tokens[point], self.last_use[point], self.freed[point] = num_tokens, self.now, 0
        self.tips[point] = tip
        self.tokens_saved[point] = num_tokens
        self.is_followed[point] = False
        self.lives[point] = -1
        if not is_end:
            self._weighed.came(name, point)
        return point

    def remove(self, point: int) -> None:
        self.names[point] = b""
        self._weighed.forget(point)
        if self._by_use is not None:
            self._by_use.remove(point)
        self._lists.remove(point)
        self._lists.append(_FREE, point)
        self._is_parked[point] = False

    def become_full(self, point: int, name: bytes, num_tokens: int) -> None:
        """An end is promised."""
        self.names[point], self.num_tokens[point], self.is_end[point] = name, num_tokens, False
        weight = self._weighed.wanted(name)
        if weight != 1.0:
            self.weigh(name, point, weight)

    def stand_at(self, point: int, key: bytes, num_tokens: int, tip: int) -> None:
        """The point becomes an end that lies nearer to the front. Its weight goes, since a client that retained it
        wanted all of it."""
        if self._weighed.weight_of(point) > 1.0:
            self._unweigh(point)
        self.names[point], self.num_tokens[point], self.is_end[point] = key, num_tokens, True
        self.tips[point] = tip

    def renew(self, point: int, class_: int) -> None:
        """Begins a new life of the point."""
        self.classes[point] = class_
        self.lives[point] = self.hazards.begin(class_, self.now)
        self.last_use[point] = self.now
        self._is_parked[point] = False
        self._lists.remove(point)
        if self._weights and self.roles[point] == Role.RESUMED and self._weighed.weight_of(point) < 1.0:
            self._weighed.want(self.names[point], 1.0)
            self._weighed.forget(point)
        if self._by_use is not None:
            self._by_use.remove(point)
        if point in self._weights:
            self._lists.append(_WEIGHED, point)
            self._weighed.changed(point)
            return
        if self._by_use is not None:
            self._by_use.append(_ALL, point)
        self._enqueue(point)

    def _queue_of(self, point: int) -> int:
        density = bisect_right(_DENSITY_STEPS, self.tokens_saved[point] / (self.freed[point] or 1))
        return self.classes[point] * _DENSITIES + density

    def _enqueue(self, point: int) -> None:
        queue = self._queue[point] = self._queue_of(point)
        is_first = self._lists.first(queue) is None
        self._lists.append(queue, point)
        if is_first:
            self._push_head(queue, point)

    def _score(self, point: int) -> float:
        """Whoever retains a point that others follow wants it for itself."""
        hazards = self.hazards
        is_wanted = point in self._weights and self._weighed.weight_of(point) > 1.0
        table = hazards.index_own if self.is_followed[point] and not is_wanted else hazards.index_all
        index = table[self.classes[point]][hazards.age_of(self.now - self.last_use[point])]
        return index * self.tokens_saved[point] / max(1, self.freed[point])

    def set_worth(self, point: int, num_slots: int, tokens_saved: int, *, is_followed: bool) -> None:
        """Says what a point is worth, before its first life begins, or since a neighbour came or went."""
        self.freed[point], self.tokens_saved[point], self.is_followed[point] = num_slots, tokens_saved, is_followed
        if point in self._weights:
            if num_slots:
                self._weighed.changed(point)
        elif point in self._lists:
            self._refile(point)

    def was_read(self, point: int) -> None:
        """A reader of something that this point alone holds is done."""
        if point in self._weights:
            self._weighed.changed(point)
        elif self.freed[point]:
            self._come_back(point)

    def can_go(self, point: int) -> bool:
        """Whether something becomes free at once when a point is given up."""
        return self.freed[point] > 0 and self._frees_at_once(point)

    def _refile(self, point: int) -> None:
        """Moves a point to where it belongs."""
        if self.freed[point]:
            self._come_back(point)
        if self.last_use[point] == self.now and self._is_misfiled(point):
            self._lists.remove(point)
            self._enqueue(point)

    def _is_misfiled(self, point: int) -> bool:
        return not self._is_parked[point] and self._queue[point] != self._queue_of(point)

    def _come_back(self, point: int) -> None:
        """Puts a point back that left because it would have freed nothing."""
        if self._by_use is not None and point not in self._by_use:
            self._put_back(self._by_use, _ALL, point)
        if self._is_parked[point]:
            self._unpark(point)

    def begin_eviction(self) -> None:
        self._num_to_pass = _MOST_PASSED

    def worst(self) -> int | None:
        """The point to give up next. If no point would free anything, one whose neighbours may then."""
        if self.now - self._looked_at >= self._look_every or len(self._heads) > _QUEUES:
            self._look()
        lists, heads = self._lists, self._heads
        while heads:
            if self._num_to_pass <= 0 and (other := self._find_other()):
                return other
            filed, _, queue, point = heads[0]
            head = lists.first(queue)
            if head == point and self.freed[point] and self._queue[point] == queue:
                score = self._score(point)
                if score > filed:
                    heapreplace(heads, (score, self.last_use[point], queue, point))
                    continue
                if self._frees_at_once(point):
                    return point
                head = self._pass_over(head)
            heappop(heads)
            if head is not None and not self.freed[head]:
                head = self._park(head)
            if head is not None:
                self._push_head(queue, head)
        return lists.first(_PARKED)

    def _pass_over(self, head: int | None) -> int | None:
        """Parks what would free nothing now at the front of a queue, as far as it may be passed over. Returns the first
        point that is left there."""
        while head is not None and self._num_to_pass > 0 and not self.can_go(head):
            self._num_to_pass -= self.freed[head] > 0
            head = self._park(head)
        return head

    def _find_other(self) -> int:
        """A point to give up instead, since too many are being read. If there is none, more may be passed over."""
        other = self._any_other()
        if not other:
            self._num_to_pass = _MOST_PASSED
        return other

    def least_recent(self) -> int | None:
        """The point used longest ago of those that would free something; else as `worst`."""
        assert self._by_use is not None
        while (point := self._by_use.first(_ALL)) is not None and not self.can_go(point):
            if self._num_to_pass <= 0 and (other := self._find_other()):
                return other
            self._num_to_pass -= self.freed[point] > 0
            self._by_use.remove(point)
        return self.worst() if point is None else point

    # ---- weights -----------------------------------------------------------------------------------------------

    def weigh(self, name: bytes, point: int, weight: float) -> None:
        """Gives a point this weight from now on. `point` is the full point of this name; 0 if it is not there. A point
        that is kept only by its weight goes next when the weight ends."""
        self._weighed.want(name, weight)
        if not point:
            return
        if weight == 1.0 and (point not in self._weights or self.idle_turns(point) < 1.0):
            self._unweigh(point)
            return
        if point not in self._weights:
            if self._by_use is not None:
                self._by_use.remove(point)
            self._lists.remove(point)
            self._lists.append(_WEIGHED, point)
            self._is_parked[point] = False
        self._weighed.put(point, 0.0 if weight == 1.0 else weight)

    def _unweigh(self, point: int) -> None:
        if point not in self._weights:
            return
        self._weighed.forget(point)
        if self._by_use is not None:
            self._put_back(self._by_use, _ALL, point)
        self._unpark(point)

    def is_weighed(self, point: int) -> bool:
        return point in self._weights

    def least_with_weights(self, point: int | None, *, by_use: bool) -> int | None:
        """The point to give up, by its last use or by its worth, among those with weights and the given one without."""
        if not self._weights:
            return point
        weighed = self._weighed.least(self.now // self._look_every, by_use=by_use)
        if weighed is None:
            return self._weighed.any_one() if point is None else point
        if point is None or not self.can_go(point):
            return weighed
        return min(weighed, point, key=lambda one: self._weighed.value_of(one, by_use=by_use))

    def value_of(self, point: int, *, by_use: bool) -> float:
        return 1 / (1 + self.now - self.last_use[point]) if by_use else self._score(point)

    def idle_turns(self, point: int) -> float:
        return (self.now - self.last_use[point]) / max(1, self._num_slots)

    # ---- places ------------------------------------------------------------------------------------------------

    def _put_back(self, lists: LinkedLists, list_: int, point: int) -> None:
        """Puts a point back in its place, which is near the front, since it was among the first when it left."""
        before = list_
        for other in islice(lists.items(list_), _MOST_STEPS):
            if self.last_use[other] > self.last_use[point]:
                break
            before = other
        lists.insert_after(before, point)

    def _look(self) -> None:
        self._looked_at = self.now
        queues = {queue for _, _, queue, _ in self._heads}
        heads = [(queue, self._lists.first(queue)) for queue in queues]
        self._heads = []
        for queue, head in heads:
            if head is not None:
                self._push_head(queue, head)

    def _push_head(self, queue: int, point: int) -> None:
        if len(self._heads) > 2 * _QUEUES:
            self._look()
        heappush(self._heads, (self._score(point), self.last_use[point], queue, point))

    def _park(self, point: int) -> int | None:
        """Returns the point behind it in its queue."""
        self._lists.remove(point)
        self._lists.append(_PARKED, point)
        self._is_parked[point] = True
        return self._lists.first(self._queue[point])

    def _unpark(self, point: int) -> None:
        self._is_parked[point] = False
        self._lists.remove(point)
        queue = self._queue[point] = self._queue_of(point)
        self._put_back(self._lists, queue, point)
        if self._lists.first(queue) == point:
            self._push_head(queue, point)

    def check_invariants(self) -> None:
        self._lists.check_invariants()
        queued = {point for list_ in range(_QUEUES) for point in self._lists.items(list_)}
        parked = set(self._lists.items(_PARKED))
        weighed = set(self._lists.items(_WEIGHED))
        assert queued | parked | weighed == set(self)
        assert all(point in self._weights for point in weighed)
        assert not any(map(self.can_go, parked))
        assert not any(point in self._weights for point in queued | parked)
        if self._by_use is not None:
            self._by_use.check_invariants()
            assert all(point in self._by_use for point in queued | parked if self.can_go(point))
