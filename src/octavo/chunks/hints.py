"""`Hint`: what a client knows of a request's resume points that nobody can see: how long they will be wanted.

A hint is on points, so on all groups of a point together. It never changes an answer, and nobody waits for it.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from octavo.errors import InputError

_UNITS_S = {"s": 1, "m": 60, "h": 3600}
_LONGEST_S = 7 * 86400


class HintKind(StrEnum):
    """What is to become of a request's points."""

    RETAIN = "retain"
    """They will be wanted for some time: they count for more, less and less as the time passes."""
    RELEASE = "release"
    """All that was retained of the request's prefix counts as ever."""
    DEMOTE = "demote"
    """Nobody will want them: they are the first to go, unless somebody uses them."""
    PREFETCH = "prefetch"
    """They will be wanted at once: what lies below memory is read, whatever that takes."""


class HintOutcome(StrEnum):
    """What became of a hint on one point."""

    TAKEN = "taken"
    UNHEEDED = "unheeded"
    """Memory keeps nothing, or its policy judges no points."""
    QUOTA = "quota"
    """The tenant has retained its share of memory."""
    TOO_MANY = "too_many"
    """No more points can be retained."""
    NO_POINT = "no_point"
    """No request can resume there: the part is shorter than a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """One hint of a request."""

    kind: HintKind
    lifetime_s: float = 0.0
    """Of a retention."""
    end_tokens: int | None = None
    """Of a retention: the point at or before this length of the prompt. None: the prompt's end and the request's."""


def read_lifetime(text: str) -> float:
    """How long a client wants a point retained, in seconds; InputError if that is no such time."""
    match = re.fullmatch(r"([0-9]{1,9})(s|m|h)", text.strip())
    seconds = int(match[1]) * _UNITS_S[match[2]] if match else 0
    if not 0 < seconds <= _LONGEST_S:
        raise InputError(f"must be a time up to {_LONGEST_S // 3600}h such as 300s, 10m or 2h")
    return float(seconds)
