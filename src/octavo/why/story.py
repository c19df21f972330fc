"""A report in sentences."""

from collections.abc import Iterator

from octavo.units import counted
from octavo.why.causes import Cause
from octavo.why.report import Left, Missing, WhyReport

_HOW = {
    "evicted": "evicted",
    "quota": "given up since its tenant has no more room",
    "unreadable": "could not be read",
    "damaged": "failed its checksum",
}


def tell(report: WhyReport) -> list[str]:
    """The sentences of a report, the result first."""
    return [*_result(report), *_loss(report), *_near_miss(report)]


def _result(report: WhyReport) -> Iterator[str]:
    media = ", ".join(f"{tokens:,} from {medium}" for medium, tokens in report.resumed_by_medium.items())
    yield (
        f"{report.request_id} resumed {report.resumed_tokens:,} of {report.prompt_tokens:,} prompt tokens"
        f"{f' ({media})' if media else ''}, after {report.waited_seconds:.3f} s of waiting."
    )
    if report.bypassed:
        yield "It asks for the log-probabilities of its prompt, so nothing may be resumed."
    elif report.resumed_tokens >= report.most_resumable_tokens:
        yield "That is the last boundary below the prompt's end: no request could resume more."


def _loss(report: WhyReport) -> Iterator[str]:
    if report.cause is None:
        if not report.bypassed and report.resumed_tokens < report.most_resumable_tokens:
            yield "No request of late had computed more of this prompt."
        return
    by = f", by {report.computed_before_by}" if report.computed_before_by else ""
    seconds = "" if report.lost_seconds is None else f", which takes about {report.lost_seconds:.3f} s"
    yield (
        f"{counted(report.computed_before_tokens, 'token')} had been computed before{by}: {report.lost_tokens:,} "
        f"are computed again{seconds}."
    )
    if report.missing is not None:
        yield from _about_block(report.cause, report.computed_before_tokens, report.missing)
    elif report.load:
        yield f"All of it is there, but was not loaded: {report.load}."
    else:
        yield "All of it is there now, and was not when the request looked."


def _about_block(cause: Cause, boundary: int, missing: Missing) -> Iterator[str]:
    first, end = missing.tokens
    more = f", and {missing.num_missing - 1:,} more" if missing.num_missing > 1 else ""
    yield (
        f"A resume at {boundary:,} lacked block {missing.block:,} (tokens {first:,} to {end - 1:,}) of group "
        f"{missing.group} ({missing.kind}){more}: {cause.value}."
    )
    for left in missing.left:
        yield how_it_left(left)
    if missing.may_have_left_earlier:
        yield "No departure of it is known, and the oldest departures are forgotten: it may have been there long ago."
    elif cause is Cause.NEVER_KEPT:
        yield "It was never stored: no writer promised that boundary."


def how_it_left(left: Left) -> str:
    """One departure in words."""
    rule = f" ({left.rule})" if left.rule else ""
    by = f", for {left.by}" if left.by else ""
    return f"On {left.medium} it was {_HOW.get(left.how, left.how)} {left.seconds_before:.1f} s before{by}{rule}."


def _near_miss(report: WhyReport) -> Iterator[str]:
    if report.was_reset_after:
        yield f"{report.was_reset_after} had the same prompt; a reset has forgotten it since."
    if report.differs is not None:
        differs = report.differs
        first, end = differs.tokens
        equal = counted(differs.num_equal_blocks, "block")
        yield (
            f"{differs.request_id} has the most like it, {equal} with the same tokens, and differs first in block "
            f"{differs.block:,} (tokens {first:,} to {end - 1:,}): {', '.join(differs.parts)}."
        )
    if report.cold_start:
        yield f"When the engine started: {report.cold_start}."
