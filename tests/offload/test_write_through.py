"""What one step may cost, however many chunks wait to be written to a tier."""

from octavo.host import PAGE_BYTES, HostArena
from octavo.policies import LRUPolicy
from rigs.faulty_tier import TierFault
from rigs.offload_world import GROUPS, OffloadWorld, wanted


def test_a_tier_that_takes_nothing_is_not_offered_every_chunk_in_one_step(below, monkeypatch):
    """It works, but is full or may not be written. A long prompt has thousands of chunks."""
    num_slots, offered, submit_store = 512, [], below.submit_store
    world = OffloadWorld(LRUPolicy(GROUPS, num_slots), [below], HostArena(num_slots, PAGE_BYTES))
    below.fault = TierFault.REFUSES
    monkeypatch.setattr(below, "submit_store", lambda *job: (offered.append(job), submit_store(*job))[1])
    world.store(*map(wanted, range(num_slots // 4)))
    world.poll()
    assert 0 < len(offered) < 50
    while world.manager.has_pending_work():
        world.poll()
    assert world.manager.status().counters["write_through_dropped"] == num_slots // 4
    below.fault = TierFault.NONE
    world.store(*map(wanted, range(1000, 1010)))
    world.settle()
    assert world.manager.status().counters["written_through"] == 10
    world.manager.check_invariants()
    world.manager.close()


def test_a_step_gives_a_tier_a_bounded_number_of_chunks(below, monkeypatch):
    num_slots, offered, submit_store = 8192, [], below.submit_store
    world = OffloadWorld(LRUPolicy(GROUPS, num_slots), [below], HostArena(num_slots, PAGE_BYTES))
    below.fault = TierFault.HANGS
    monkeypatch.setattr(below, "submit_store", lambda *job: (offered.extend(job[1]), submit_store(*job))[1])
    world.store(*map(wanted, range(num_slots // 4)))
    for _ in range(2):
        world.poll()
        assert len(offered) <= 1024
        offered.clear()
    world.poll()
    assert not offered
    below.fault = TierFault.NONE
    world.settle()
    world.manager.check_invariants()
    world.manager.close()


def test_a_chunk_that_waits_or_is_being_written_is_not_written_again(below):
    num_slots = 64
    world = OffloadWorld(LRUPolicy(GROUPS, num_slots), [below], HostArena(num_slots, PAGE_BYTES))
    below.fault = TierFault.HANGS
    world.store(wanted(0))
    world.manager.renew([wanted(0).key])
    world.poll()
    world.manager.renew([wanted(0).key])
    world.poll()
    below.fault = TierFault.NONE
    world.settle()
    assert world.manager.status().counters["written_through"] == 1
    world.manager.check_invariants()
    world.manager.close()
