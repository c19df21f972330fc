"""What the past tells about resume points: how likely one of some class and age is to be used soon.

A life of a point begins when it is promised or used, and ends with its next use; that the point was given up meanwhile
does not end it, so that what is missed is learned from too (ghosts: a key and two numbers each).

    lives     ... [born, state] [born, state] ...                   a ring; the oldest is forgotten
    ghosts    ... [key, life] [key, life] ...                       a ring too: some chunks of points that went
    reached   class x age: lives that came to that age without a use; a hand for each age follows the ring
    own       class x age: uses of the point itself; if others followed it when its life began, while others do
    path      class x age: uses of a longer one, on whose path it is, or would be if the longer one were still there

    index     class x age: over the best horizon, expected uses by the expected time until a use or that horizon
              (Gittins). Where little is known of a class, its rates are those of all classes, times a factor

Ages are in slots that were stored meanwhile. So no clock is needed, and what was learned holds at any rate of requests.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from octavo.tables import ShardedDict

_CLASSES_PER_ROLE, _FOLLOWERS_COUNTED = 16, 4
NUM_CLASSES = 6 * _CLASSES_PER_ROLE
FOLLOWED = NUM_CLASSES
"""The first row of the index for points that others follow."""
NUM_AGES = 26
"""Ages in steps of half an octave, from a 128th of the capacity to 64 times the capacity."""
_FIRST_AGE = 1 / 128
_MOST_LIVES = 1 << 15
_GHOSTS_PER_UNIT = 16
_FEWEST_GHOSTS, _MOST_GHOSTS = 1 << 12, 1 << 17
_PRIOR = 3.0
"""The weight of what all classes tell together, in lives."""
_EVERYWHERE_PRIOR = 10.0
"""The weight of what is expected of all classes together, in lives."""
_STEPS_IN_FIRST = 4
"""The first age is as long as the next five together."""
_GUESS_OWN, _GUESS_ALL = 0.01, 0.03
_SMALL, _MEDIUM = 1 / 24, 1 / 6
_USED, _ENDED = NUM_CLASSES, 2 * NUM_CLASSES
"""The state of a life is its class while it waits for a use, its class and this once it had it, or that it does not
count."""
_FEWEST_NEW, _LIVES_PER_NEW = 64, 64
"""In lives: the index is computed anew after so many, or when one has come for so many that are known: a few more
hardly change what many tell."""
_COUNTING = 31
"""In lives: how long before that the counting begins, one age with each life."""


class Role(IntEnum):
    """What a point was when it was last used or promised."""

    NEW = 0
    SEEN = 1
    """It was promised, given up, and promised again; or promised twice."""
    RESUMED = 2
    BETWEEN = 3
    """The writer has promised a later point of the same prompt too."""
    PASSED = 4
    """The same, and a request resumed at a later point: a second one has come as far as here."""
    LEFT = 5
    """A request resumed before its end and went another way."""


_FACTORS = (1.0, 8.0, 8.0, 1.0, 8.0, 0.1)
"""By role: how much more often than all points such a point is expected to be used, while little is known."""
_ROLES = np.repeat(np.arange(len(_FACTORS)), _CLASSES_PER_ROLE)
"""By class."""
_NUM_ROWS = NUM_CLASSES + len(_FACTORS)
"""Rows of the tables: the classes, then for each role one of a class without lives."""
_ROWS_OF_ROLES = NUM_CLASSES + _ROLES
"""By class: the row of its role."""
_FACTORS_OF_ROWS = np.concatenate([np.take(_FACTORS, _ROLES), _FACTORS])
_STEPS = [_STEPS_IN_FIRST] + [1] * (NUM_AGES - 1)
"""By age: its length, in steps of half an octave."""


def class_of(role: int, new_share: float, num_followers: int) -> int:
    """The class of a point. Points of one class are used alike. `new_share`: its tokens beyond the point below, when it
    was first promised, as a share of a mean promise's tokens."""
    size = (new_share > 0) + (new_share > _SMALL) + (new_share > _MEDIUM)
    counted = num_followers if num_followers < _FOLLOWERS_COUNTED else _FOLLOWERS_COUNTED - 1
    return role * _CLASSES_PER_ROLE + size * _FOLLOWERS_COUNTED + counted


Table = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_STARTS, _HORIZONS = np.triu_indices(NUM_AGES)
"""Each age with each horizon that is no earlier, age by age."""
_STOPS = _HORIZONS + 1
_FIRST_OF_AGE = np.searchsorted(_STARTS, np.arange(NUM_AGES))
_LEAST_UNUSED = 1e-12
"""The least share of lives that reaches an age, so that sums still tell what comes after it."""


class Hazards:
    """The lives of points, the counts that they gave, and the index that follows."""

    def __init__(self, num_slots: int, num_units: int) -> None:
        """`num_units`: the chunks of a full tier of which a ghost would be kept if they were given up."""
        first = max(1.0, num_slots * _FIRST_AGE)
        self.ages = [0.0, *(first * 2 ** (age / 2) for age in range(NUM_AGES - 1))]
        """Where each age begins."""
        self._age_starts = np.ceil(self.ages[1:]).astype(np.int64)
        """The same but for the first, to be searched for many whole ages at once."""
        self._widths = np.diff([*self.ages, self.ages[-1] * 2**0.5])
        shape = (_NUM_ROWS, NUM_AGES)
        self._reached, self._own, self._path = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self._born = array("q", bytes(8 * _MOST_LIVES))
        self._state = array("B", bytes(_MOST_LIVES))
        self._states = np.frombuffer(self._state, np.uint8)
        """The same column, to be counted."""
        self._num_lives = 0
        self._learn_at = _COUNTING
        """The life with which the index is computed anew."""
        self._hands = [0] * NUM_AGES
        self._ghosts = ShardedDict(-1)
        """By key: the number of the ghost. Its place in the columns is that number modulo their length."""
        self._ghost_keys: list[bytes] = []
        self._ghost_lives = array("q")
        self._num_ghosts = 0
        self._most_ghosts = max(_FEWEST_GHOSTS, min(_MOST_GHOSTS, _GHOSTS_PER_UNIT * num_units))
        self._learn_index()

    def age_of(self, age: float) -> int:
        return bisect_right(self.ages, age) - 1

    def ages_of(self, ages: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """`age_of` each of many whole numbers."""
        return self._age_starts.searchsorted(ages, side="right")

    def begin(self, class_: int, now: int) -> int:
        """Begins a life and returns its number."""
        life = self._num_lives
        index = life % _MOST_LIVES
        self._born[index], self._state[index] = now, class_
        self._num_lives = life + 1
        if life >= self._learn_at - _COUNTING:
            self._learn(life, now)
        return life

    def use(self, life: int, now: int, *, is_own: bool, is_followed: bool = True, share: float = 1.0) -> None:
        """The point, or a point that follows it, is used, or this share of its tokens. That ends this life.
        `is_followed`: whether others follow the point now."""
        index = life % _MOST_LIVES
        class_ = self._state[index]
        if class_ < _USED and self._is_known(life):
            age = self.age_of(now - self._born[index])
            is_own = is_own and (is_followed or class_ % _FOLLOWERS_COUNTED == 0)
            (self._own if is_own else self._path)[class_, age] += share
            self._state[index] = _USED + class_

    def end(self, life: int) -> None:
        """Ends a life that does not count: the point is now known to be of another class, or was no point."""
        if self._is_known(life):
            self._state[life % _MOST_LIVES] = _ENDED

    def turn_into(self, life: int, class_: int) -> None:
        """A life without a use so far is of another class than was thought."""
        index = life % _MOST_LIVES
        if self._state[index] < _USED and self._is_known(life):
            self._state[index] = class_

    def _is_known(self, life: int) -> bool:
        return life >= self._num_lives - _MOST_LIVES

    # ---- ghosts ------------------------------------------------------------------------------------------------

    def note_given_up(self, keys: Sequence[bytes], life: int) -> None:
        """Chunks of a point were given up; its life goes on. The oldest ghosts are forgotten beyond the bound."""
        shards, most = self._ghosts.shards, self._most_ghosts
        for key in keys:
            number = self._num_ghosts
            if len(self._ghost_keys) < most:
                self._ghost_keys.append(key)
                self._ghost_lives.append(life)
            else:
                place = number % most
                oldest = self._ghost_keys[place]
                if shards[oldest[0]].get(oldest) == number - most:
                    del shards[oldest[0]][oldest]
                self._ghost_keys[place], self._ghost_lives[place] = key, life
            shards[key[0]][key] = number
            self._num_ghosts = number + 1

    def take_ghosts(self, keys: Sequence[bytes]) -> list[tuple[bytes, int]]:
        """Takes the ghosts among these chunks, in order, with their lives."""
        shards, lives, most = self._ghosts.shards, self._ghost_lives, self._most_ghosts
        return [(key, lives[shards[key[0]].pop(key) % most]) for key in keys if key in shards[key[0]]]

    # ---- learning ----------------------------------------------------------------------------------------------

    def _learn(self, life: int, now: int) -> None:
        """A part of what the next index needs, so that no single call does all of it."""
        age = life - self._learn_at + _COUNTING
        if age < NUM_AGES:
            self._follow(age, now)
        elif life == self._learn_at:
            self._learn_index()
            self._learn_at = life + max(_FEWEST_NEW, min(life, _MOST_LIVES) // _LIVES_PER_NEW)

    def _follow(self, age: int, now: int) -> None:
        """Moves an age's hand on to the lives that have reached that age."""
        hand = max(self._hands[age], self._num_lives - _MOST_LIVES)
        latest = now - self.ages[age]
        while hand < self._num_lives:
            start = hand % _MOST_LIVES
            stop = min(start + self._num_lives - hand, _MOST_LIVES)
            count = bisect_right(self._born, latest, start, stop) - start
            counts = np.bincount(self._states[start : start + count], minlength=_ENDED)
            self._reached[:NUM_CLASSES, age] += counts[:_USED]
            if not age:
                self._reached[:NUM_CLASSES, age] += counts[_USED:_ENDED]
            hand += count
            if count < stop - start:
                break
        self._hands[age] = hand

    def _learn_index(self) -> None:
        """By class and age. Classes of one role without a life are all alike, so their index is computed once."""
        uses = self._own + self._path
        is_known: Mask = np.logical_or.reduce(np.logical_or(self._reached, uses), axis=1)
        is_known[NUM_CLASSES:] = True
        rows = is_known.nonzero()[0]
        reached, factors = self._reached[rows], _FACTORS_OF_ROWS[rows]
        own = _rates(self._own[rows], reached, _GUESS_OWN, factors)
        all_ = _rates(uses[rows], reached, _GUESS_ALL, factors)
        index = gittins(np.concatenate([own, all_]), self._widths)
        places = np.searchsorted(rows, np.where(is_known[:NUM_CLASSES], np.arange(NUM_CLASSES), _ROWS_OF_ROLES))
        self.index = index[np.concatenate([len(rows) + places, places])]
        """By class and age: for a point that nobody follows; and then, by class, for one that others follow, which is
        worth what it is used for itself."""


def _rates(uses: Table, reached: Table, guess: float, factors: Table) -> Table:
    """Uses by lives at each age, of some classes. `guess`: the uses at each age while nothing is known. A class of
    which little is known at some age is taken to be used there as all classes are, times how much more often it is used
    than they are at other ages; while nothing is known of it, times its factor."""
    everywhere = np.array(_everywhere(uses.sum(0).tolist(), reached.sum(0).tolist(), guess))
    factors = (uses.sum(1) + _PRIOR * factors) / ((reached * everywhere).sum(1) + _PRIOR)
    expected = factors[:, None] * everywhere
    rates: Table = np.minimum((uses + _PRIOR * expected) / (reached + _PRIOR), 0.95)
    return rates


def _everywhere(uses: Sequence[float], reached: Sequence[float], guess: float) -> list[float]:
    """The rates of all classes together. Where little is known, a rate is taken to be that of all ages before, in steps
    of half an octave: so it halves as the age doubles. The longer a point is unused, the less likely is its use."""
    rates = []
    uses_before, lives_before = _EVERYWHERE_PRIOR * guess, _EVERYWHERE_PRIOR
    for steps, uses_here, lives in zip(_STEPS, uses, reached, strict=True):
        expected = steps * uses_before / lives_before
        rates.append((uses_here + _EVERYWHERE_PRIOR * expected) / (lives + _EVERYWHERE_PRIOR))
        uses_before += uses_here
        lives_before += steps * lives
    return rates


def gittins(rates: Table, widths: Table) -> Table:
    """The index of each class at each age, from its uses by lives at each age and the ages' widths.

    All ages with all horizons at once: uses and times are summed up from the first age on, so what lies between two
    ages is a difference of such sums. Both are in lives that reach the first age, which cancels out. Ages come first in
    memory, so that an age's sums of all classes lie together."""
    unused = np.ones(rates.shape)
    np.multiply.accumulate(1 - rates[:, :-1], axis=1, out=unused[:, 1:])
    np.maximum(unused, _LEAST_UNUSED, out=unused)
    uses, times = np.zeros((2, NUM_AGES + 1, len(rates)))
    np.add.accumulate((unused * rates).T, axis=0, out=uses[1:])
    np.add.accumulate((unused * widths * (1 - rates / 2)).T, axis=0, out=times[1:])
    gained = uses.take(_STOPS, axis=0)
    gained -= uses.take(_STARTS, axis=0)
    took = times.take(_STOPS, axis=0)
    took -= times.take(_STARTS, axis=0)
    gained /= took
    index: Table = np.maximum.reduceat(gained, _FIRST_OF_AGE).T
    return index
