"""The choice between loading and computing: `LoadChooser`, from what both were measured to take.

For a request that waits, each way to its first token has a price in seconds:

    compute     [ tokens of others, ahead ][ all its tokens beyond the device ]
    load all    [ tokens of others, ahead ]
                [ queue of a tier ][ its bytes ][ bytes to the device ][ the tokens beyond its resume point ]
    load a part the same, with a nearer resume point: that of memory alone, while a tier below is slow

A load costs nothing while others compute: whoever has to wait for them anyway may as well wait for bytes. Computing
costs those too who have loaded before it ends, as they wait for the rest of it. The cheapest way is taken. What was
never measured is tried.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from math import inf

_WEIGHT_OF_NEWEST = 0.1
_LEAST_TOKENS = 64
LEAST_BYTES = 4 << 20
"""Smaller copies and reads are over before anybody looks, and say nothing about a rate."""
_LEAST_SPREAD = 0.1
"""Of amounts, as the share of their squares that is variance. Less, and noise decides what a latency seems to be: two
amounts that are measured equally often have it where one is twice the other."""
_LARGER_PROBE = 4
"""Times the chunks of a small one: amounts that are alike tell no latency."""
_LARGER_PROBE_S = 0.25
"""No larger one is begun that is expected to take longer."""
_TRIED_ANYWAY = 64
"""One in 64 loads from memory that seem too slow is tried, since what was slow may have become quick again."""
_PROBED_ANYWAY = 16
"""Of those from tiers, one in 16 is begun and not waited for."""


class LoadRule(Enum):
    """Which loads are begun."""

    MEASURED = "measured"
    """Those that are expected to be quicker than computing."""
    ALWAYS = "always"
    NEVER = "never"


class Outlook(Enum):
    """What to do about a request's load."""

    LOAD = "load"
    LOAD_PART = "load part"
    """What memory has; the rest is computed."""
    COMPUTE = "compute"


class MovingLine:
    """Seconds as a fixed part and a part per unit, fitted to recent measurements. Relative errors count alike.

    Amounts that are alike tell only the sum of both: what was known of the fixed part holds then."""

    def __init__(self, *, least: float = 0.0) -> None:
        self.fixed = self.per_unit = 0.0
        self._least = least
        self._count = self._x = self._y = self._xx = self._xy = 0.0

    @property
    def is_known(self) -> bool:
        return self._count > 0

    def note(self, amount: float, seconds: float) -> None:
        if amount < self._least or amount <= 0 or seconds <= 0:
            return
        kept, weight = 1 - _WEIGHT_OF_NEWEST, seconds**-2
        self._count = kept * self._count + weight
        self._x = kept * self._x + weight * amount
        self._y = kept * self._y + weight * seconds
        self._xx = kept * self._xx + weight * amount * amount
        self._xy = kept * self._xy + weight * amount * seconds
        self._fit()

    def seconds_for(self, amount: float) -> float:
        """Zero while nothing was measured, and for nothing."""
        if not self.is_known or amount <= 0:
            return 0.0
        return self.fixed + self.per_unit * amount

    def amount_in(self, seconds: float) -> float:
        """So much is done after these seconds; nothing while nothing was measured."""
        if not self.is_known or seconds <= self.fixed:
            return 0.0
        return (seconds - self.fixed) / self.per_unit if self.per_unit else inf

    def _fit(self) -> None:
        spread = self._count * self._xx - self._x * self._x
        if spread > _LEAST_SPREAD * self._count * self._xx:
            per_unit = max(0.0, (self._count * self._xy - self._x * self._y) / spread)
            self.fixed = max(0.0, (self._y - per_unit * self._x) / self._count)
        else:
            self.fixed = min(self.fixed, self._y / self._count)
        self.per_unit = max(0.0, (self._xy - self.fixed * self._x) / self._xx)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A resume point that loads can bring, and what that takes."""

    tokens_left: int
    """The tokens that are to be computed beyond it."""
    bytes_to_device: int
    """Copies that are under way included."""
    reading_s: float = 0.0
    """The seconds until the tiers below have brought what memory lacks."""
    is_in_memory: bool = True


class LoadChooser:
    """What loads and computing were found to take, and what follows."""

    def __init__(self, rule: LoadRule = LoadRule.MEASURED) -> None:
        self._rule = rule
        self.prefill = MovingLine(least=_LEAST_TOKENS)
        """Of tokens."""
        self.from_memory = MovingLine(least=LEAST_BYTES)
        """Of bytes, host memory to device."""
        self._num_refused = 0

    @property
    def foregone(self) -> Outlook | None:
        """What is chosen for every request; None where it depends."""
        if self._rule is LoadRule.NEVER:
            return Outlook.COMPUTE
        return None if self._rule is LoadRule.MEASURED and self.prefill.is_known else Outlook.LOAD

    def choose(
        self,
        whole: Way,
        part: Way | None,
        *,
        tokens_alone: int,
        tokens_ahead: int,
        loads_end_in: Iterable[float] = (),
    ) -> Outlook:
        """`tokens_alone`: to be computed where nothing is loaded. `tokens_ahead`: what others compute before.
        `loads_end_in`: the seconds until others have what they wait for."""
        if self.foregone is not None:
            return self.foregone
        ahead_s = self.prefill.seconds_for(tokens_ahead)
        seconds = {Outlook.LOAD: self._seconds(whole, ahead_s)}
        if part is not None:
            seconds[Outlook.LOAD_PART] = self._seconds(part, ahead_s)
        end_s = ahead_s + self.prefill.seconds_for(tokens_alone)
        seconds[Outlook.COMPUTE] = end_s + sum(max(0.0, end_s - max(load_s, ahead_s)) for load_s in loads_end_in)
        best = min(seconds, key=lambda outlook: seconds[outlook])
        if best is Outlook.COMPUTE and whole.is_in_memory:
            self._num_refused += 1
            return Outlook.LOAD if self._num_refused % _TRIED_ANYWAY == 0 else best
        return best

    def worth_of_an_answer_s(self, *, tokens_alone: int, tokens_ahead: int) -> float | None:
        """How long to wait for a tier that is still to say what it has: while others compute, and then for half the
        time that computing all takes, since there may be nothing. None: nothing was measured, or loads always pay."""
        if self._rule is LoadRule.NEVER:
            return 0.0
        if self._rule is LoadRule.ALWAYS or not self.prefill.is_known:
            return None
        return self.prefill.seconds_for(tokens_ahead) + self.prefill.seconds_for(tokens_alone) / 2

    def chunks_to_probe(
        self, reads: Sequence[tuple[int, int]], num_refused: int, seconds_to_read: Callable[[Mapping[int, int]], float]
    ) -> int:
        """So many of the first reads that were refused, each a tier and bytes, are made all the same, with nobody
        waiting: mostly none, and else what can be measured, or several times as much where that is quick."""
        times, rest = divmod(num_refused - 1, _PROBED_ANYWAY)
        if self._rule is not LoadRule.MEASURED or rest:
            return 0
        few = 1 + sum(total < LEAST_BYTES for total in accumulate(num_bytes for _, num_bytes in reads))
        larger: Counter[int] = Counter()
        for tier, num_bytes in reads[: _LARGER_PROBE * few]:
            larger[tier] += num_bytes
        is_larger = times % 2 == 0 and seconds_to_read(larger) <= _LARGER_PROBE_S
        return _LARGER_PROBE * few if is_larger else few

    def loading_s(self, way: Way) -> float:
        """The seconds until all of it is on the device."""
        return way.reading_s + self.from_memory.seconds_for(way.bytes_to_device)

    def _seconds(self, way: Way, ahead_s: float) -> float:
        return max(self.loading_s(way), ahead_s) + self.prefill.seconds_for(way.tokens_left)
