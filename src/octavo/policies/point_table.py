"""The resume points that a policy keeps: what each is worth, and which is given up first."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import inf

import numpy as np

from octavo.policies.hazards import FOLLOWED, NUM_AGES, Hazards, Role
from octavo.policies.weighed_points import WeighedPoints
from octavo.tables import LinkedLists, Part

_MOST_LOOKED_AT = 2048
"""Points, more or less, of which the least are found at once."""
_SHARE_FOUND, _FEWEST_FOUND = 64, 16
"""One of so many that were looked at goes before others are looked at. Of some hundreds as many as the second number
go, since each look costs as much as several points do; of fewer, one of that number."""
_TIE = 1e-9
"""By how much of their worth two points differ at most because one was used later."""
_ALL = 0
_MOST_STEPS = 64
_MOST_PASSED = 128
"""The most points that one eviction passes over, in half a millisecond or so."""
_LOOKS_PER_TURN = 128
"""How often the points with weights are looked at anew while the tier stores its capacity once."""


class PointTable:
    """Points by number. The columns of a part of them are looked at together, and the least of that part go, one after
    the other; then the next part's. Points with a weight wait apart (`WeighedPoints`).

    A point that would free nothing now because it is being read is parked when its turn comes: a bounded number of
    them for one eviction, and then any other goes. `set_worth` and `was_read` bring it back.

    Points that lie denser than a window is long free nothing alone, and much together. They go like others: a bounded
    number in one eviction that frees nothing yet, and more where nothing else can go."""

    def __init__(
        self,
        num_slots: int,
        num_units: int,
        reckon_changed: Callable[[], None],
        frees_at_once: Callable[[int], bool],
        any_other: Callable[[], int],
        *,
        most_let_go: int,
        is_asked_by_use: bool,
    ) -> None:
        """`reckon_changed`: says `set_worth` for the points whose worth may have changed. `frees_at_once`: whether
        nobody reads what a point would free. `any_other`: a point of which that is true, as good as can be found soon;
        0 if none is. `most_let_go`: how many points one eviction may give up that free nothing yet. `is_asked_by_use`:
        whether somebody will ask for the point used longest ago."""
        self.now = 0
        """The slots stored since the beginning; it serves as a clock."""
        self.hazards = Hazards(num_slots, num_units)
        self._num_slots, self._any_other = num_slots, any_other
        self._reckon_changed, self._frees_at_once = reckon_changed, frees_at_once
        self._most_let_go = most_let_go
        self._num_to_pass = self._num_to_let_go = 0
        """In this eviction: how many points may still be parked, and given up though they free nothing yet."""
        self.tokens_per_slot = array("d", [0.0])
        """Per point, as it was when it was last reckoned: its tokens beyond the next point below, for each slot that
        becomes free then, or is its part of those that go only with several points."""
        self.shared = array("d", [0.0])
        """Per point, of the same time: that part."""
        self._columns: list[array[int] | array[float]] = [self.tokens_per_slot, self.shared]
        self.names: list[bytes] = [b""]
        """Per point: the hash of its last block; for an end, the key of its last chunk."""
        self.is_end = self.new_column("b")
        """Per point: 1 for an end, which is a prefix in one group and not a full point."""
        self.num_tokens = self.new_column("q")
        self.last_use = self.new_column("q")
        self.freed = self.new_column("q")
        """Per point: the slots that become free when it is given up and nobody reads them."""
        self.lives = self.new_column("q")
        self.rows = self.new_column("h")
        """Per point: the row of the index, which is its class, and another where other points follow it."""
        self.roles = self.new_column("b")
        self.new_tokens = self.new_column("q")
        self.tips = self.new_column("i")
        """Per point: the stretch that ends with it in its first group; 0 if that is no prefix group."""
        self._waits = self.new_column("b")
        """Per point: 1 if it is neither parked nor weighed."""
        self._unused: list[int] = []
        """Numbers of points that were removed."""
        self._parked: dict[int, None] = {}
        self._least: list[tuple[int, int]] = []
        """Points with their lives, the least last, as they were when they were looked at."""
        self._part = 0
        """The part of the points that was looked at last."""
        self._looked_in_vain = False
        """Whether no point was found in this eviction. What may free something since then is not looked for."""
        self._by_use = LinkedLists(_ALL + 1) if is_asked_by_use else None
        """All points by their last use, except those that would free nothing and came to the front."""
        self._weighed = WeighedPoints(self, self.last_use)
        self._weights = self._weighed.weights

    def parts(self) -> Sequence[Part]:
        return [self.names]

    def __contains__(self, point: int) -> bool:
        return bool(self.names[point])

    def __iter__(self) -> Iterator[int]:
        return (point for point, name in enumerate(self.names) if name)

    def new_column(self, typecode: str = "i") -> "array[int]":
        """A column by point. What it says of new points is its owner's to set."""
        column = array(typecode, [0])
        self._columns.append(column)
        return column

    def add(self, name: bytes, num_tokens: int, tip: int, *, is_end: bool) -> int:
        """Adds a point that waits nowhere until its first life begins."""
        if self._unused:
            point = self._unused.pop()
        else:
            point = len(self.names)
            self.names.append(b"")
            for column in self._columns:
                column.append(0)
            if self._by_use is not None:
                self._by_use.grow()
        self.names[point], self.is_end[point] = name, is_end
        self.num_tokens[point], self.last_use[point], self.tips[point] = num_tokens, self.now, tip
        self.freed[point], self.shared[point], self.tokens_per_slot[point] = 0, 0.0, inf  # until it is reckoned
        self.rows[point], self.lives[point] = 0, -1
        if not is_end and name in self._weighed.wanted:
            self._weighed.put(point, self._weighed.wanted[name])
        return point

    def remove(self, point: int) -> None:
        self.names[point], self.lives[point] = b"", -1
        self._weighed.forget(point)
        if self._by_use is not None:
            self._by_use.remove(point)
        self._leave(point)
        self._unused.append(point)

    def become_full(self, point: int, name: bytes, num_tokens: int) -> None:
        """An end is promised."""
        self.names[point], self.num_tokens[point], self.is_end[point] = name, num_tokens, False
        if name in self._weighed.wanted:
            self.weigh(name, point, self._weighed.wanted[name])

    def stand_at(self, point: int, key: bytes, num_tokens: int, tip: int) -> None:
        """The point becomes an end that lies nearer to the front. Its weight goes, since a client that retained it
        wanted all of it."""
        if self._weighed.weight_of(point) > 1.0:
            self._unweigh(point)
        self.names[point], self.num_tokens[point], self.is_end[point] = key, num_tokens, True
        self.tips[point] = tip

    def renew(self, point: int, class_: int) -> None:
        """Begins a new life of the point."""
        self._set_class(point, class_)
        self.lives[point] = self.hazards.begin(class_, self.now)
        self.last_use[point] = self.now
        if self._weights and self.roles[point] == Role.RESUMED and self._weighed.weight_of(point) < 1.0:
            self._weighed.want(self.names[point], 1.0)
            self._weighed.forget(point)
        if self._by_use is not None:
            self._by_use.remove(point)
        if point in self._weights:
            self._leave(point)
            self._weighed.changed(point)
            return
        if self._by_use is not None:
            self._by_use.append(_ALL, point)
        self._wait(point)

    def turn_into(self, point: int, class_: int) -> None:
        """The point is of another class than was thought, and its life goes on."""
        self._set_class(point, class_)
        self.hazards.turn_into(self.lives[point], class_)

    def _set_class(self, point: int, class_: int) -> None:
        self.rows[point] = class_ + FOLLOWED if self.rows[point] >= FOLLOWED else class_

    def _wait(self, point: int) -> None:
        self._parked.pop(point, None)
        self._waits[point] = True

    def _leave(self, point: int) -> None:
        self._parked.pop(point, None)
        self._waits[point] = False

    def _park(self, point: int) -> None:
        self._waits[point] = False
        self._parked[point] = None

    def _score(self, point: int) -> float:
        """Whoever retains a point that others follow wants it for itself."""
        is_wanted = point in self._weights and self._weighed.weight_of(point) > 1.0
        row = self.rows[point] % FOLLOWED if is_wanted else self.rows[point]
        index = self.hazards.index[row, self.hazards.age_of(self.now - self.last_use[point])]
        return float(index) * self.tokens_per_slot[point]

    def set_worth(self, point: int, num_slots: int, shared: float, tokens_saved: int, *, is_followed: bool) -> None:
        """Says what a point is worth, before its first life begins, or since a neighbour came or went."""
        self.freed[point], self.shared[point] = num_slots, shared
        self.tokens_per_slot[point] = tokens_saved / (num_slots + shared or 1)
        class_ = self.rows[point] % FOLLOWED
        self.rows[point] = class_ + FOLLOWED if is_followed else class_
        if point in self._weights:
            if num_slots or shared:
                self._weighed.changed(point)
        elif (num_slots or shared) and self.lives[point] >= 0:
            self._come_back(point)

    def was_read(self, point: int) -> None:
        """A reader of something that this point alone holds is done."""
        if point in self._weights:
            self._weighed.changed(point)
        elif self.freed[point]:
            self._come_back(point)

    def can_go(self, point: int) -> bool:
        """Whether something becomes free when a point is given up: at once, or when others go too."""
        return self._frees_at_once(point) or (not self.freed[point] and self.shared[point] > 0)

    def _come_back(self, point: int) -> None:
        """Puts a point back that left because it would have freed nothing."""
        if self._by_use is not None and point not in self._by_use:
            self._put_back(self._by_use, _ALL, point)
        if point in self._parked:
            self._wait(point)
        if self._looked_in_vain:
            self._least.append((point, self.lives[point]))

    def begin_eviction(self) -> None:
        if self._looked_in_vain or self._num_to_pass < _MOST_PASSED:
            self._looked_in_vain = False
            self._least.clear()
        self._num_to_pass, self._num_to_let_go = _MOST_PASSED, self._most_let_go

    def worst(self) -> int | None:
        """The point to give up next. If no point would free anything, one whose neighbours may then."""
        least = self._least
        while least or self._look():
            if self._num_to_pass <= 0 and (other := self._find_other()):
                return other
            point, life = least[-1]
            if self.lives[point] == life and self._waits[point]:
                if self._frees_at_once(point):
                    return point
                if self.freed[point]:
                    self._num_to_pass -= 1
                    self._park(point)
                elif self._num_to_let_go > 0 and self.shared[point]:
                    self._num_to_let_go -= 1
                    return point
            least.pop()
        return self._passed_over_first()

    def _look(self) -> bool:
        """Finds the least of the next part in which a point waits that would free something. False if none does."""
        self._reckon_changed()
        if self._looked_in_vain:
            return bool(self._least)
        num_parts = self._num_parts()
        for part in range(self._part + 1, self._part + 1 + num_parts):
            self._part = part % num_parts
            self._least += self._find_least(self._part, num_parts)
            if self._least:
                return True
        if self._num_to_let_go <= 0:
            self._num_to_let_go = self._most_let_go
            return self._look()
        self._looked_in_vain = True
        return False

    def _num_parts(self) -> int:
        return -(-(len(self.names) - len(self._unused)) // _MOST_LOOKED_AT)

    def _find_least(self, part: int, num_parts: int) -> list[tuple[int, int]]:
        """The least points of those whose numbers leave this rest, with their lives. The least is last; the older of
        two equal ones is less. As many more are found as were passed over in this eviction."""
        here = slice(part, None, num_parts)
        goes = np.frombuffer(self.freed, np.int64)[here]
        if self._num_to_let_go > 0:
            goes = np.logical_or(goes, np.frombuffer(self.shared)[here])
        places = np.logical_and(goes, np.frombuffer(self._waits, np.int8)[here]).nonzero()[0]
        if not len(places):
            return []
        hazards = self.hazards
        last_use = np.frombuffer(self.last_use, np.int64)[here].take(places)
        rows = np.frombuffer(self.rows, np.int16)[here].take(places)
        worth = hazards.index.take(rows * NUM_AGES + hazards.ages_of(self.now - last_use))
        worth *= np.frombuffer(self.tokens_per_slot, np.float64)[here].take(places)
        worth *= 1 + _TIE / (1 + self.now) * last_use
        num_passed = _MOST_PASSED - self._num_to_pass
        num_found = max(-(-len(places) // _SHARE_FOUND), min(_FEWEST_FOUND, len(places) // _FEWEST_FOUND))
        count = min(len(places), max(num_found, num_passed))
        least = worth.argpartition(count - 1)[:count]
        points = places[least[(-worth[least]).argsort()]] * num_parts + part
        return [(point, self.lives[point]) for point in points.tolist()]

    def _passed_over_first(self) -> int | None:
        """The point that was passed over first, of those that would free nothing."""
        if not self._parked:
            waiting = np.flatnonzero(np.frombuffer(self._waits, np.int8)).tolist()
            for point in sorted(waiting, key=self.last_use.__getitem__):
                self._park(point)
        return next(iter(self._parked), None)

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
            self._leave(point)
        self._weighed.put(point, 0.0 if weight == 1.0 else weight)

    def _unweigh(self, point: int) -> None:
        if point not in self._weights:
            return
        self._weighed.forget(point)
        if self._by_use is not None:
            self._put_back(self._by_use, _ALL, point)
        self._wait(point)

    def is_weighed(self, point: int) -> bool:
        return point in self._weights

    def least_with_weights(self, point: int | None, *, by_use: bool) -> int | None:
        """The point to give up, by its last use or by its worth, among those with weights and the given one without."""
        if not self._weights:
            return point
        self._reckon_changed()
        weighed = self._weighed.least(self.now * _LOOKS_PER_TURN // self._num_slots, by_use=by_use)
        if weighed is None:
            return self._weighed.any_one() if point is None else point
        if point is not None and self.last_use[point] == self.now:
            point = self._least_older()
        if point is None or not self.can_go(point):
            return weighed
        return min(weighed, point, key=lambda one: self._weighed.value_of(one, by_use=by_use))

    def _least_older(self) -> int | None:
        """The least that can go of those that were there before the last store, as far as a look finds one. Else a
        prefill that goes on would be its own victim where the others are retained."""
        num_parts = self._num_parts()
        found = [point for point, _ in reversed(self._find_least(self._part % num_parts, num_parts))]
        return next((point for point in found if self.last_use[point] < self.now and self.can_go(point)), None)

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

    def check_invariants(self, reckoned: set[int]) -> None:
        """`reckoned`: the points whose worth is known as it is now. The others come back when they are reckoned."""
        waiting = {point for point, waits in enumerate(self._waits) if waits}
        assert waiting | self._parked.keys() | self._weights.keys() == set(self)
        assert not waiting & self._parked.keys()
        assert not self._weights.keys() & (waiting | self._parked.keys())
        assert not any(map(self.can_go, self._parked.keys() & reckoned))
        if self._by_use is not None:
            self._by_use.check_invariants()
            assert all(point in self._by_use for point in waiting & reckoned if self.can_go(point))
