"""`MissReport`: what a request of another engine, such as vLLM, asked the tiers for and did not get. Only the engine
knows where the request resumed; the tiers know which chunk was missing, and why.

    looked -> looked -> ... -> report      the first miss of each group counts: an engine stops there, or turns to less
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from octavo.chunks import Departure, Departures, GroupOffloadConfig, OffloadKey, get_offload_group_idx
from octavo.errors import MALFORMED
from octavo.ids import GroupIdx
from octavo.why.causes import Cause
from octavo.why.records import CAUSE_OF
from octavo.why.report import Left
from octavo.why.story import how_it_left

MARK = "octavo why "
"""Precedes the report in a line of a log."""


class Missed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first chunk of a group that was asked for and not found."""

    group: int
    kind: str
    tokens_until: int
    """The token at which the chunk ends in the sequence."""
    cause: Cause
    left: list[Left] = []
    may_have_left_earlier: bool = False


class MissReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The misses of one request, as the tiers saw them."""

    request_id: str
    found: dict[str, int]
    """Per group, chunks that were found or on their way."""
    missed: list[Missed]
    gave_up_waiting: bool = False
    gave_up_loading: bool = False
    cold_start: str = ""


class Looks:
    """The chunks that one request has asked for so far."""

    __slots__ = ("found", "is_over", "missed")

    def __init__(self) -> None:
        self.found: dict[OffloadKey, None] = {}
        self.missed: dict[GroupIdx, tuple[int, list[Departure]]] = {}
        self.is_over = False
        """Whether it loads or stores by now: what it asks for later, a preemption has lost."""


class MissLog:
    """Notes what was found of the chunks that requests ask for."""

    def __init__(
        self, departures: Departures, groups: Sequence[GroupOffloadConfig], cold_starts: Iterable[str] = ()
    ) -> None:
        self._departures = departures
        self._kinds = [group.spec.kind for group in groups]
        self._cold_start = "; ".join(cold_starts)

    def looked(self, looks: Looks, key: OffloadKey, tokens_until: int, *, is_there: bool) -> None:
        """A request asks for a chunk. If it asks again in a later step, the later answer counts."""
        if looks.is_over:
            return
        group_idx = get_offload_group_idx(key)
        if is_there:
            looks.found[key] = None
            missed = looks.missed.get(group_idx)
            if missed is not None and missed[0] == tokens_until:
                del looks.missed[group_idx]
        elif group_idx not in looks.missed:
            looks.missed[group_idx] = tokens_until, self._departures.find(key)

    def report(
        self, request_id: str, looks: Looks, *, gave_up_waiting: bool, gave_up_loading: bool = False
    ) -> MissReport:
        now = self._departures.clock()
        found = Counter(f"{group} {self._kinds[group]}" for group in map(get_offload_group_idx, looks.found))
        missed = [
            Missed(
                group=group_idx,
                kind=self._kinds[group_idx],
                tokens_until=tokens_until,
                cause=CAUSE_OF[departures[-1].how] if departures else Cause.NEVER_KEPT,
                left=[
                    Left(medium=d.medium, how=d.how.value, seconds_before=max(0.0, now - d.at), rule=d.rule)
                    for d in departures
                ],
                may_have_left_earlier=not departures and self._departures.has_forgotten,
            )
            for group_idx, (tokens_until, departures) in sorted(looks.missed.items())
        ]
        return MissReport(
            request_id=request_id,
            found=dict(found),
            missed=missed,
            gave_up_waiting=gave_up_waiting,
            gave_up_loading=gave_up_loading,
            cold_start="" if found else self._cold_start,
        )


def find_report(lines: Iterable[str], request_id: str) -> MissReport | None:
    """The last report of a request in a log. An engine may lengthen the id that its client got: `cmpl-1a2b-0-9f3c`."""
    last, written = None, msgspec.json.encode(request_id).decode()[1:-1]
    for line in lines:
        _, mark, text = line.partition(MARK)
        if not mark or written not in text:
            continue
        try:
            report = msgspec.json.decode(text, type=MissReport)
        except MALFORMED:
            continue
        if report.request_id == request_id or report.request_id.startswith(f"{request_id}-"):
            last = report
    return last


def tell_misses(report: MissReport) -> Iterator[str]:
    """The report in sentences."""
    found = ", ".join(f"{count:,} of group {group}" for group, count in report.found.items()) or "none"
    yield f"{report.request_id} asked memory and tiers for chunks; there were: {found}."
    for missed in report.missed:
        yield (
            f"The first that was missing of group {missed.group} ({missed.kind}) ends at token "
            f"{missed.tokens_until:,}: {missed.cause.value}."
        )
        yield from map(how_it_left, missed.left)
        if missed.may_have_left_earlier:
            yield "No departure of it is known, and the oldest departures are forgotten."
    if report.gave_up_waiting:
        yield "It waited for chunks from a tier, and went on without: they came too late, or there was no room."
    if report.gave_up_loading:
        yield "It computed what could have been loaded, or a part of it: computing was expected to be quicker."
    if report.cold_start:
        yield f"When the engine started: {report.cold_start}."
    yield "Where the engine resumed, what its device had and what computing took is not known to the tiers."
