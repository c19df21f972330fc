"""Makes the report of one request from the records of a `WhyLog`, by comparing it with other requests."""

from collections.abc import Sequence

import msgspec

from octavo.chunks import Departure
from octavo.offload import Outlook
from octavo.planning import KVCacheConfig
from octavo.why.causes import Cause, Loss
from octavo.why.fingerprint import Difference, compare
from octavo.why.records import StartRecord
from octavo.why.report import Differs, Left, Missing, WhyReport
from octavo.why.story import tell


def explain_request(
    config: KVCacheConfig,
    records: Sequence[StartRecord],
    request_id: str,
    *,
    cold_starts: Sequence[str] = (),
    tenant: bytes | None = None,
) -> WhyReport | None:
    """The report, or None if the request has no record. With `tenant`, only this tenant's requests are compared:
    tenants that do not share a cache must not learn of each other's prompts."""
    seen = [record for record in records if tenant is None or record.tenant == tenant]
    index = next((index for index, record in enumerate(seen) if record.request_id == request_id), None)
    if index is None:
        return None
    record, earlier = seen[index], seen[:index]
    names = {other.blocks_id: other.request_id for other in seen}
    differs, same = None, None
    if record.num_resumed < record.most_tokens and not record.bypassed:
        differs, same = _nearest(config, record, earlier)
    is_reset = same is not None and same.generation < record.generation
    is_cold = not record.num_before and same is None
    report = WhyReport(
        request_id=request_id,
        started_at=record.started_at,
        waited_seconds=record.waited_s,
        prompt_tokens=record.num_prompt_tokens,
        resumed_tokens=record.num_resumed,
        resumed_by_medium=dict(record.resumed),
        most_resumable_tokens=record.most_tokens,
        computed_before_tokens=record.num_before,
        computed_before_by=record.before_by if any(other.request_id == record.before_by for other in seen) else "",
        lost_tokens=record.num_before - record.num_resumed,
        lost_seconds=record.lost_s,
        cause=None if record.loss is None else record.loss.cause,
        load=_load_of(record),
        missing=None if record.loss is None else _missing(config, record, record.loss, names),
        differs=differs,
        was_reset_after=same.request_id if same is not None and is_reset else "",
        cold_start="; ".join(cold_starts) if is_cold else "",
        bypassed=record.bypassed,
    )
    return msgspec.structs.replace(report, story=tell(report))


def _load_of(record: StartRecord) -> str:
    load = record.load
    if load is None or record.loss is None or record.loss.cause is not Cause.TOO_LATE:
        return ""
    if load.is_late:
        return "it came too late"
    return {Outlook.COMPUTE: "computing was quicker", Outlook.LOAD_PART: "a part was loaded"}.get(
        load.outlook or Outlook.LOAD, ""
    )


def _missing(config: KVCacheConfig, record: StartRecord, loss: Loss, names: dict[str, str]) -> Missing | None:
    if loss.group_idx is None or loss.block is None:
        return None
    group = config.groups[loss.group_idx]
    first = loss.block * group.block_size
    return Missing(
        group=loss.group_idx,
        kind=group.kind,
        block=loss.block,
        tokens=(first, first + group.block_size),
        num_missing=loss.num_missing,
        left=[_left(departure, record, names) for departure in record.departures],
        may_have_left_earlier=not record.departures and record.has_forgotten,
    )


def _left(departure: Departure, record: StartRecord, names: dict[str, str]) -> Left:
    return Left(
        medium=departure.medium,
        how=departure.how.value,
        seconds_before=max(0.0, record.started_at - departure.at),
        rule=departure.rule,
        by=names.get(departure.by, ""),
    )


def _nearest(
    config: KVCacheConfig, record: StartRecord, earlier: Sequence[StartRecord]
) -> tuple[Differs | None, StartRecord | None]:
    """The earlier request with the most similar prompt, the newest of several; or one with the same prompt as far as it
    can be resumed."""
    size = config.hash_block_size
    best: tuple[StartRecord, Difference] | None = None
    for other in reversed(earlier):
        difference = compare(record.fingerprint, other.fingerprint, size)
        if difference is None:
            if len(other.fingerprint.blocks) * size >= record.most_tokens:
                return None, other
        elif difference.num_equal_blocks > (best[1].num_equal_blocks if best else 0):
            best = other, difference
    if best is None:
        return None, None
    other, difference = best
    first = difference.block * size
    differs = Differs(
        request_id=other.request_id,
        block=difference.block,
        tokens=(first, first + size),
        parts=list(difference.parts),
        num_equal_blocks=difference.num_equal_blocks,
    )
    return differs, None
