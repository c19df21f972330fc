"""From records to a report: who may see what, and what a load that came to nothing is called."""

from dataclasses import replace

import pytest

from octavo.blocks import KVCacheManager
from octavo.chunks import Departures, name_tenant
from octavo.hashing import PLAIN, RequestIdentity
from octavo.offload import LoadStory, Outlook
from octavo.testing import full, small_model
from octavo.why import MOST_RECORDS, Cause, Loss, WhyLog, explain_request


class World:
    def __init__(self):
        self.manager = KVCacheManager(small_model(full()).plan(1.0))
        self.manager.pool.departures = Departures()
        self.log = WhyLog(self.manager, self.manager.pool.departures)

    def serve(self, name, tokens, identity=PLAIN, *, is_aborted=False):
        manager = self.manager
        request = manager.begin_request(f"b{name}", tokens, identity)
        assert manager.allocate(request, len(tokens), resume=manager.find_resume(request)) is not None
        self.log.started(name, request, {}, waited_s=0.5)
        manager.commit(request, len(tokens))
        if not is_aborted:
            self.log.ended(name, request)
        manager.free(request)

    def why(self, name, **options):
        return explain_request(self.log.config, self.log.records(), name, **options)


def test_a_tenant_hears_of_its_own_requests_only():
    world, tokens = World(), list(range(30))
    for number, tenant in enumerate(["a", "b", "a"]):
        world.serve(f"r{number}", tokens, RequestIdentity(cache_salt=tenant))
    assert world.why("r1").differs.parts == ["cache_salt"]
    assert world.why("r1", tenant=name_tenant("b")).differs is None
    assert world.why("r1", tenant=name_tenant("a")) is None
    assert world.why("r2", tenant=name_tenant("a")).resumed_tokens == 28


def test_who_has_computed_less_is_not_named():
    """The rest was computed by one that was aborted; on a shared store it may be another engine's."""
    world, tokens = World(), list(range(30))
    world.serve("short", tokens[:10])
    world.serve("aborted", tokens, is_aborted=True)
    for name, by in (("again", ""), ("and again", "again")):
        world.serve(name, tokens)
        report = world.why(name)
        assert (report.computed_before_tokens, report.computed_before_by) == (28, by)


def test_the_ring_is_bounded():
    world = World()
    for number in range(MOST_RECORDS + 5):
        world.serve(f"r{number}", [number, 1, 2, 3, 4])
    assert len(world.log.records()) == MOST_RECORDS
    assert world.why("r4") is None
    assert world.why("r5") is not None


@pytest.mark.parametrize(
    ("load", "told"),
    [
        (LoadStory(outlook=Outlook.LOAD, is_late=True), "it came too late"),
        (LoadStory(outlook=Outlook.COMPUTE, is_late=False), "computing was quicker"),
        (LoadStory(outlook=Outlook.LOAD_PART, is_late=False), "a part was loaded"),
        (LoadStory(outlook=None, is_late=False), ""),
    ],
)
def test_what_became_of_a_load(load, told):
    world = World()
    world.serve("r", list(range(30)))
    (record,) = world.log.records()
    record = replace(record, num_before=28, loss=Loss(cause=Cause.TOO_LATE), load=load)
    report = explain_request(world.log.config, [record], "r")
    assert (report.cause, report.load) == (Cause.TOO_LATE, told)
    assert (told or "was not when the request looked") in " ".join(report.story)


def test_what_was_evicted_and_for_whom():
    world = World()
    world.serve("old", list(range(30)))
    for number in range(200):
        world.serve(f"r{number}", [1000 + 50 * number + token for token in range(40)])
    world.serve("again", list(range(30)))
    report = world.why("again")
    assert (report.cause, report.computed_before_by, report.computed_before_tokens) == (Cause.EVICTED, "old", 28)
    (left,) = report.missing.left
    assert (left.medium, left.how) == ("device", "evicted")
    assert left.by.startswith("r")
