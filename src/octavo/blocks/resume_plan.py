"""How much of a request can be resumed from the device, and with which rows."""

from collections.abc import Sequence
from typing import NamedTuple

from octavo.blocks.lookup import GroupLookup
from octavo.blocks.pool import BlockPool
from octavo.blocks.request import RequestBlocks
from octavo.ids import GroupIdx
from octavo.specs import FoundBlocks, GroupAvailability, resume_and_known


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
    if (lacking := _without_first_block(pool, request, num_tokens)) is not None:
        known = request.promises.known_tokens
        return ResumePlan(0, lacking, ((),) * len(config.groups), known or None, pool.epoch)
    lookups = list(map(GroupLookup, pool.indexes, request.group_hashes))
    groups = [
        GroupAvailability(rule, lookup, group.is_draft)
        for rule, lookup, group in zip(pool.rules, lookups, config.groups, strict=True)
    ]
    point = request.resume_point(num_tokens)
    resume, known = resume_and_known(groups, point, granularity=config.resume_granularity)
    known = 0 if resume.limited_by is None else max(known, request.promises.known_tokens)
    return ResumePlan(
        num_tokens=resume.num_tokens,
        limited_by=resume.limited_by,
        found=_found_blocks(pool, request, resume.num_tokens, lookups),
        branch_point=known if known > resume.num_tokens else None,
        epoch=pool.epoch,
    )


def _without_first_block(pool: BlockPool, request: RequestBlocks, num_tokens: int) -> GroupIdx | None:
    """The group that rules out all boundaries of a request that nobody has begun: one that needs the whole prefix, and
    lacks its first block. So a new prompt costs one look into one index."""
    first = pool.first_prefix_group
    if first is None or not (hashes := request.group_hashes[first]) or hashes[0] in pool.indexes[first]:
        return None
    return first if pool.config.last_boundary(num_tokens) else None


def _found_blocks(
    pool: BlockPool, request: RequestBlocks, num_tokens: int, lookups: Sequence[GroupLookup]
) -> tuple[FoundBlocks, ...]:
    """The rows of what a resume there needs. An encoder's blocks are taken even where the decoder begins anew."""
    point = request.resume_point(num_tokens)
    found: list[FoundBlocks] = []
    for rule, lookup in zip(pool.rules, lookups, strict=True):
        ranges = rule.needed_blocks(point) if num_tokens or not rule.indexes_decoder_tokens else ()
        if not num_tokens and any(lookup.first_missing(r.start, r.stop) < r.stop for r in ranges):
            ranges = ()
        found.append([(blocks, lookup.rows_of(blocks)) for blocks in ranges])
    return tuple(found)
