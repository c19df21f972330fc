"""What the past tells about resume points: how likely one of some class and age is to be used soon.

A life of a point begins when it is promised or used, and ends with its next use; that the point was given up meanwhile
does not end it, so that what is missed is learned from too (ghosts: a key and a number each).

    lives     ... [class, born, waits] [class, born, waits] ...     a ring; the oldest is forgotten
    reached   class x age: lives that came to that age without a use; a hand for each age follows the ring
    own       class x age: uses of the point itself
    path      class x age: uses of a longer one, on whose path it is

    index     class x age: over the best horizon, expected uses by the expected time until a use or that horizon
              (Gittins). Rates are shrunk towards those of all classes, so that a new class is no outlier

Ages are in slots that were stored meanwhile. So no clock is needed, and what was learned holds at any rate of requests.
"""

from array import array
from bisect import bisect_right
from enum import IntEnum

import numpy as np
import numpy.typing as npt

NUM_CLASSES = 64
NUM_AGES = 26
"""Ages in steps of half an octave, from a 128th of the capacity to 64 times the capacity."""
_FIRST_AGE = 1 / 128
_MOST_LIVES = 1 << 15
_PRIOR = 3.0
"""The weight of what all classes tell together, in lives."""
_GUESS_OWN, _GUESS_ALL = 0.01, 0.03
_UPDATE_AFTER = 64
"""In lives."""

_BLOCK_TOKENS = 512


class Role(IntEnum):
    """What a point was when it was last used or promised."""

    NEW = 0
    SEEN = 1
    """It was promised, given up, and promised again; or promised twice."""
    RESUMED = 2
    BETWEEN = 3
    """The writer has promised a later point of the same prompt too."""


def class_of(role: Role, new_tokens: int, num_followers: int) -> int:
    """The class of a point. Points of one class are used alike. `new_tokens`: its tokens beyond the point below, when
    it was first promised."""
    size = (new_tokens > 0) + (new_tokens > _BLOCK_TOKENS) + (new_tokens > 4 * _BLOCK_TOKENS)
    return role * 16 + size * 4 + min(3, num_followers)


Table = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class Hazards:
    """The lives of points, the counts that they gave, and the index that follows."""

    def __init__(self, num_slots: int) -> None:
        first = max(1.0, num_slots * _FIRST_AGE)
        self.ages = [0.0, *(first * 2 ** (age / 2) for age in range(NUM_AGES - 1))]
        """Where each age begins."""
        self._widths = np.diff([*self.ages, self.ages[-1] * 2**0.5])
        shape = (NUM_CLASSES, NUM_AGES)
        self._reached, self._own, self._path = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.index_own: list[list[float]] = []
        self.index_all: list[list[float]] = []
        self._born = array("q", bytes(8 * _MOST_LIVES))
        self._class = array("b", bytes(_MOST_LIVES))
        self._waits = array("b", bytes(_MOST_LIVES))
        self._ghost: list[bytes] = [b""] * _MOST_LIVES
        self._num_lives = 0
        self._hands = [0] * NUM_AGES
        self._ghosts: dict[bytes, int] = {}
        self._update()

    def age_of(self, age: float) -> int:
        return bisect_right(self.ages, age) - 1

    def begin(self, class_: int, now: int) -> int:
        """Begins a life and returns its number."""
        life = self._num_lives
        index = life % _MOST_LIVES
        self._ghosts.pop(self._ghost[index], None)
        self._born[index], self._class[index], self._waits[index], self._ghost[index] = now, class_, 1, b""
        self._num_lives = life + 1
        if not life % _UPDATE_AFTER:
            self._follow(now)
            self._update()
        return life

    def use(self, life: int, now: int, *, is_own: bool) -> None:
        """The point, or a point that follows it, is used. Only a use of its own ends this life."""
        if life < self._num_lives - _MOST_LIVES:
            return
        index = life % _MOST_LIVES
        age = self.age_of(now - self._born[index])
        (self._own if is_own else self._path)[self._class[index], age] += 1
        if is_own:
            self._waits[index] = 0

    def end(self, life: int) -> None:
        """Ends a life that does not count: the point is now known to be of another class, or was no point."""
        self._waits[life % _MOST_LIVES] = 0

    def note_given_up(self, key: bytes, life: int) -> None:
        """The point was given up; its life goes on as a ghost."""
        if life >= self._num_lives - _MOST_LIVES:
            self._ghosts[key] = life
            self._ghost[life % _MOST_LIVES] = key

    def take_ghosts(self, keys: list[bytes]) -> list[tuple[bytes, int]]:
        """Takes the ghosts among these points, in order, with their lives."""
        if self._ghosts.keys().isdisjoint(keys):
            return []
        return [(key, self._ghosts.pop(key)) for key in keys if key in self._ghosts]

    def _follow(self, now: int) -> None:
        """Moves each age's hand on to the lives that have reached that age."""
        oldest = max(0, self._num_lives - _MOST_LIVES)
        for age, begin in enumerate(self.ages):
            hand = max(oldest, self._hands[age])
            while hand < self._num_lives and now - self._born[hand % _MOST_LIVES] >= begin:
                index = hand % _MOST_LIVES
                if self._waits[index] or not age:
                    self._reached[self._class[index], age] += 1
                hand += 1
            self._hands[age] = hand

    def _update(self) -> None:
        """Classes without a life are all alike, so their index is computed once."""
        uses = self._own + self._path
        is_known: Mask = np.logical_or(self._reached.any(1), uses.any(1))
        rows = np.where(is_known, np.cumsum(is_known), 0)
        rates_own = _rates(self._own, self._reached, _GUESS_OWN, is_known)
        rates_all = _rates(uses, self._reached, _GUESS_ALL, is_known)
        index = _gittins(np.concatenate([rates_own, rates_all]), self._widths)
        self.index_own = index[: len(rates_own)][rows].tolist()
        self.index_all = index[len(rates_own) :][rows].tolist()


def _rates(uses: Table, reached: Table, guess: float, is_known: Mask) -> Table:
    """Uses by lives at each age, first of a class without lives, then of the classes with some. `guess`: the uses at
    each age while nothing is known. The rate halves as the age doubles: the longer a point is unused, the less likely
    its use."""
    guesses = np.full(NUM_AGES, guess)
    guesses[0] *= 4  # which is as long as the next five together
    everywhere = (uses.sum(0) + guesses) / (reached.sum(0) + 1.0)
    none = np.zeros((1, NUM_AGES))
    uses, reached = np.concatenate([none, uses[is_known]]), np.concatenate([none, reached[is_known]])
    rates: Table = np.minimum((uses + _PRIOR * everywhere) / (reached + _PRIOR), 0.95)
    return rates


def _gittins(rates: Table, widths: Table) -> Table:
    """Ages are rows meanwhile, so that numpy goes from one to the next for all classes together."""
    rates = np.ascontiguousarray(rates.T)
    unused, spans = 1 - rates, 1 - rates / 2
    columns = widths[:, None]
    index: Table = np.empty(rates.shape)
    there: Table = np.empty(rates.shape)
    for age in range(NUM_AGES):
        left = there[age:]
        left[0] = 1
        np.cumprod(unused[age:-1], axis=0, out=left[1:])
        gained = np.cumsum(left * rates[age:], axis=0)
        took = np.cumsum(left * columns[age:] * spans[age:], axis=0)
        np.divide(gained, took, out=gained)
        gained.max(axis=0, out=index[age])
    return index.T
