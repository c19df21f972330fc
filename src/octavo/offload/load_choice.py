"""The choice between loading and computing: `LoadChooser`, from what both were measured to take.

For a request that waits, each way to its first token has a price in seconds:

    compute     [ tokens of others, ahead ][ all its tokens beyond the device ]
    load all    [ tokens of others, ahead ]
                [ queue of a tier ][ its bytes ][ bytes to the device ][ the tokens beyond its resume point ]
    load a part the same, with a nearer resume point: that of memory alone, while a tier below is slow

A load costs nothing while others compute: a request that has to wait for them anyway may as well wait for bytes.
Computing also costs those requests whose loads end meanwhile, as they wait for the rest of it. The cheapest
way is taken. What was never measured is tried.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from math import inf

_WEIGHT_OF_NEWEST = 0.1
_LEAST_TOKENS = 64
_SHORTEST_S, _LONGEST_S = 1e-9, 1e9
"""What no clock measures is no measurement: its weight would be infinite or zero."""
LEAST_BYTES = 4 << 20
"""A shorter copy or read ends before anything can measure it, so it says nothing about a rate."""
_LEAST_SPREAD = 0.1
"""A line is fitted only if the variance of the amounts is at least this share of their mean square. With less spread,
noise decides the latency: two amounts that are measured equally often have this spread if one is twice the other."""
_LARGER_PROBE = 4
"""A larger probe has this many times the chunks of a small one, since equal amounts cannot tell a latency from a
rate."""
_LARGER_PROBE_S = 0.25
"""A larger probe is not begun if it is expected to take longer."""
_TRIED_ANYWAY = 64
"""One in 64 loads from memory that seem too slow is tried, since what was slow may have become quick again; of the
first 64 the 1st, 2nd, 4th, 8th and so on, since the first load of a process is often its slowest."""
_PROBED_ANYWAY = 16
"""One in 16 refused loads from tiers is begun all the same, and no request waits for it."""


class LoadRule(Enum):
    """Which loads are begun."""

    MEASURED = "measured"
    """Loads that are expected to be quicker than computing."""
    ALWAYS = "always"
    NEVER = "never"


class Outlook(Enum):
    """What to do about a request's load."""

    LOAD = "load"
    LOAD_PART = "load part"
    """Load what is in memory, and compute the rest."""
    COMPUTE = "compute"


class MovingLine:
    """Seconds as a fixed part and a part per unit, fitted to recent measurements. Relative errors count alike.

    Equal amounts tell only the sum of both parts; then the fixed part stays as it was known before."""

    def __init__(self, *, least: float = 0.0) -> None:
        self.fixed = self.per_unit = 0.0
        self._least = least
        self._count = self._x = self._y = self._xx = self._xy = 0.0

    @property
    def is_known(self) -> bool:
        return self._count > 0

    def note(self, amount: float, seconds: float) -> None:
        if amount < self._least or amount <= 0 or not _SHORTEST_S <= seconds <= _LONGEST_S:
            return
        kept, weight = 1 - _WEIGHT_OF_NEWEST, seconds**-2
        self._count = kept * self._count + weight
        self._x = kept * self._x + weight * amount
        self._y = kept * self._y + weight * seconds
        self._xx = kept * self._xx + weight * amount * amount
        self._xy = kept * self._xy + weight * amount * seconds
        self._fit()

    def seconds_for(self, amount: float) -> float:
        """Zero for an amount of zero, and while nothing was measured."""
        if not self.is_known or amount <= 0:
            return 0.0
        return self.fixed + self.per_unit * amount

    def amount_in(self, seconds: float) -> float:
        """The amount that is done after this time; zero while nothing was measured."""
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
    """A resume point that loads can reach, and what reaching it takes."""

    tokens_left: int
    """The tokens beyond it that must be computed."""
    bytes_to_device: int
    """Bytes to copy to the device, copies that are under way included."""
    reading_s: float = 0.0
    """The seconds until the tiers below have brought what memory lacks."""
    is_in_memory: bool = True


def first_token_s(loading_s: float, ahead_s: float, computing_s: float) -> float:
    """The price of a way: a load goes on while others compute, and what it leaves is computed after both."""
    return max(loading_s, ahead_s) + computing_s


class LoadChooser:
    """Measures loads and computing, and chooses between them."""

    def __init__(self, rule: LoadRule = LoadRule.MEASURED) -> None:
        self._rule = rule
        self.prefill = MovingLine(least=_LEAST_TOKENS)
        """Seconds by tokens."""
        self.from_memory = MovingLine(least=LEAST_BYTES)
        """Seconds by bytes, from host memory to the device."""
        self.num_too_slow = 0
        """Loads that were not begun because computing is quicker."""
        self.num_cut_short = 0
        """Loads only of the part that is in memory, because computing the rest is quicker than reading it."""
        self._num_refused = 0

    @property
    def num_given_up(self) -> int:
        """Loads that were not begun as a whole."""
        return self.num_too_slow + self.num_cut_short

    @property
    def foregone(self) -> Outlook | None:
        """The outcome that is the same for every request; None if it depends on the request."""
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
        """`tokens_alone`: tokens to compute if nothing is loaded. `tokens_ahead`: tokens that other requests compute
        before. `loads_end_in`: for each other request that waits for a load, the seconds until the load ends."""
        outlook = self.foregone
        if outlook is None:
            outlook = self._cheapest(whole, part, tokens_alone, tokens_ahead, loads_end_in)
        self.num_too_slow += outlook is Outlook.COMPUTE
        self.num_cut_short += outlook is Outlook.LOAD_PART
        return outlook

    def _cheapest(
        self, whole: Way, part: Way | None, tokens_alone: int, tokens_ahead: int, loads_end_in: Iterable[float]
    ) -> Outlook:
        ahead_s = self.prefill.seconds_for(tokens_ahead)
        seconds = {Outlook.LOAD: self._seconds(whole, ahead_s)}
        if part is not None:
            seconds[Outlook.LOAD_PART] = self._seconds(part, ahead_s)
        end_s = ahead_s + self.prefill.seconds_for(tokens_alone)
        seconds[Outlook.COMPUTE] = end_s + sum(max(0.0, end_s - max(load_s, ahead_s)) for load_s in loads_end_in)
        best = min(seconds, key=lambda outlook: seconds[outlook])
        if best is Outlook.COMPUTE and whole.is_in_memory:
            self._num_refused += 1
            one_in = min(_TRIED_ANYWAY, 1 << self._num_refused.bit_length() - 1)
            return Outlook.LOAD if self._num_refused % one_in == 0 else best
        return best

    def worth_of_an_answer_s(self, *, tokens_alone: int, tokens_ahead: int) -> float | None:
        """How long to wait for a tier that has not yet said what it holds: while other requests compute, and then half
        the time of computing the whole prompt, since the tier may hold nothing. None: nothing was measured, or loads
        always pay."""
        if self._rule is LoadRule.NEVER:
            return 0.0
        if self._rule is LoadRule.ALWAYS or not self.prefill.is_known:
            return None
        return self.prefill.seconds_for(tokens_ahead) + self.prefill.seconds_for(tokens_alone) / 2

    def chunks_to_probe(
        self, reads: Sequence[tuple[int, int]], num_refused: int, seconds_to_read: Callable[[Mapping[int, int]], float]
    ) -> int:
        """How many of the first refused reads, each a tier and bytes, are made all the same while no request waits for
        them. Mostly none; else as many as can be measured, or several times as many if that is quick."""
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
        """The seconds until everything is on the device."""
        return way.reading_s + self.from_memory.seconds_for(way.bytes_to_device)

    def _seconds(self, way: Way, ahead_s: float) -> float:
        return first_token_s(self.loading_s(way), ahead_s, self.prefill.seconds_for(way.tokens_left))
