"""`listen`: reads one engine's events into the index that it shares with all engines of the same plan and hashes."""

import asyncio
import logging
import time

from octavo.errors import InputError
from octavo.events import SharedContext, SourceConfig, Subscriber, SubscriberConfig
from octavo.hashing import DEFAULT_SEED
from octavo.http import EngineFacts
from octavo.router.feed import UNUSABLE, Feed, LearningFeed, PlannedFeed
from octavo.router.indexes import Indexes
from octavo.router.member import Member
from octavo.router.plan_learner import PlanLearner
from octavo.router.reasons import find_lack

_logger = logging.getLogger(__name__)

_CONTEXTS = SharedContext(has_many_sockets=True)
"""All engines that a process follows share one."""
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_LIKELY_SEEDS = ("0", DEFAULT_SEED)
_NO_EVENTS = "it publishes no events: what it could resume is not known"
_NO_REPLAY = "its events have no replay: blocks that it stored before, and batches that get lost, are not known"


async def listen(member: Member, facts: EngineFacts, indexes: Indexes) -> None:
    """Reads until it is cancelled, or until the engine's events cannot be used; then the member's `blind` says why."""
    if member.has_left:
        return
    try:
        source = member.address.source(facts.events, facts.replay)
        if source is None or (facts.plan is None and not member.learns_plan):
            member.go_blind(f"{_NO_EVENTS} ({member.remedies.events})")
            return
        if source.replay_endpoint is None:
            _logger.warning("engine %s: %s (%s)", member.name, _NO_REPLAY, member.remedies.replay)
        await _read(source, member, facts, indexes)
    except InputError as error:
        _follow_no_more(member, indexes, error)


async def _read(source: SourceConfig, member: Member, facts: EngineFacts, indexes: Indexes) -> None:
    """After an error that is not the engine's, such as that no more files may be opened, it begins anew: after longer
    pauses the sooner it fails again."""
    pause_s, told = _FIRST_PAUSE_S, ""
    while not member.has_left:
        began = time.monotonic()
        try:
            with Subscriber(SubscriberConfig(sources=(source,), with_tokens=False), contexts=_CONTEXTS) as subscriber:
                feed = _feed_of(member, facts, indexes)
                async for item in subscriber:
                    feed.take(item)
                    is_more = True
                    while is_more:
                        await asyncio.sleep(0)  # a burst of events lets requests through
                        is_more = feed.go_on()
        except InputError:
            raise
        except Exception as error:
            if time.monotonic() - began > _LONGEST_PAUSE_S:
                pause_s, told = _FIRST_PAUSE_S, ""
            lack = find_lack(error)
            if repr(error) != told and not lack:
                told = repr(error)
                _logger.exception("engine %s: reading its events has failed", member.name)
            _follow_no_more(member, indexes, lack or error)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _follow_no_more(member: Member, indexes: Indexes, error: Exception | str) -> None:
    """What nobody follows must not count."""
    indexes.forget(member)
    member.go_blind(f"{UNUSABLE}: {error}")


def _feed_of(member: Member, facts: EngineFacts, indexes: Indexes) -> Feed:
    if facts.plan is not None:
        index = indexes.find(facts.plan, algorithm=facts.hash_algorithm, seed=facts.hash_seed)
        return PlannedFeed(member, index, facts.stores)
    seeds = (facts.hash_seed,) if facts.hash_seed else _LIKELY_SEEDS
    learner = PlanLearner(
        hash_algorithm=facts.hash_algorithm,
        hash_seeds=seeds,
        adapters=facts.adapters,
        remedy_of_seed=member.remedies.seed,
    )
    return LearningFeed(member, indexes, algorithm=facts.hash_algorithm, learner=learner, stores=facts.stores)
