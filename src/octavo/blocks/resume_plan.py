"""How much of a request can be resumed from the device, and with which rows."""

from collections.abc import Sequence
from typing import NamedTuple

from octavo.blocks.lookup import GroupLookup
from octavo.blocks.pool import BlockPool
from octavo.blocks.request import RequestBlocks
from octavo.ids import GroupIdx
from octavo.specs import FoundBlocks, GroupAvailability, Resume, resume_and_known


class ResumePlan(NamedTuple):
    """What `find_resume` found. `allocate` looks again where the cache has changed since."""

    num_tokens: int
    limited_by: GroupIdx | None
    found: tuple[FoundBlocks, ...]
    """By group."""
    branch_point: int | None
    """Where others left the prefix, as far as the device or the tiers know, if it could not be resumed there."""
    epoch: int


def find_resume(pool: BlockPool, request: RequestBlocks, num_tokens: int) -> ResumePlan:
    """The resume point of a request's first `num_tokens` tokens, whose blocks are hashed. Changes nothing."""
    config = pool.config
    lookups = [GroupLookup(index, hashes) for index, hashes in zip(pool.indexes, request.group_hashes, strict=True)]
    groups = [
        GroupAvailability(spec=group.spec.rule, blocks=lookup, is_draft=group.is_draft)
        for group, lookup in zip(config.groups, lookups, strict=True)
    ]
    point = request.resume_point(num_tokens)
    resume, known = resume_and_known(groups, point, granularity=config.resume_granularity)
    known = 0 if resume.limited_by is None else max(known, request.promises.known_tokens)
    return ResumePlan(
        num_tokens=resume.num_tokens,
        limited_by=resume.limited_by,
        found=_found_blocks(pool, request, resume, lookups),
        branch_point=known if known > resume.num_tokens else None,
        epoch=pool.epoch,
    )


def _found_blocks(
    pool: BlockPool, request: RequestBlocks, resume: Resume, lookups: Sequence[GroupLookup]
) -> tuple[FoundBlocks, ...]:
    """The rows of what the resume needs. An encoder's blocks are taken even where the decoder begins anew."""
    point = request.resume_point(resume.num_tokens)
    found: list[FoundBlocks] = []
    for group, lookup in zip(pool.config.groups, lookups, strict=True):
        spec = group.spec.rule
        is_resumable = resume.num_tokens > 0 or not spec.indexes_decoder_tokens
        ranges = spec.needed_blocks(point) if is_resumable else ()
        if ranges and not resume.num_tokens and any(lookup.first_missing(r.start, r.stop) < r.stop for r in ranges):
            ranges = ()
        found.append([(blocks, lookup.rows_of(blocks)) for blocks in ranges])
    return tuple(found)
