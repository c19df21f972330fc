import pytest
from hypothesis import given, strategies as st

from octavo.errors import InputError
from octavo.events.aggregator import WorkerAggregator
from octavo.events.messages import AllBlocksCleared, BlockRemoved, BlockStored


def stored(*hashes, group_idx=0, medium="GPU", extra_keys=None):
    return BlockStored(
        block_hashes=list(hashes),
        parent_block_hash=None,
        token_ids=[1, 2],
        block_size=1,
        lora_id=None,
        medium=medium,
        lora_name=None,
        group_idx=group_idx,
        extra_keys=extra_keys,
    )


def removed(*hashes, group_idx=0, medium="GPU"):
    return BlockRemoved(block_hashes=list(hashes), medium=medium, group_idx=group_idx)


def test_a_block_counts_when_all_workers_have_it():
    engine = WorkerAggregator(2)
    assert engine.add(0, [stored(1, 2)]) == []
    assert engine.add(1, [stored(2, 3, extra_keys=[("a",), ("b",)])]) == [stored(2, extra_keys=[("a",)])]
    assert engine.add(0, [stored(2)]) == []


def test_it_is_gone_when_one_of_them_has_lost_it():
    engine = WorkerAggregator(2)
    for worker in (0, 1):
        engine.add(worker, [stored(1)])
    assert engine.add(1, [removed(1, 9)]) == [removed(1)]
    assert engine.add(0, [removed(1)]) == []
    assert engine.add(0, [stored(1)]) == []


def test_groups_and_media_are_apart():
    engine = WorkerAggregator(2)
    engine.add(0, [stored(1, group_idx=0), stored(1, group_idx=None), stored(1, medium="CPU")])
    assert engine.add(1, [stored(1, group_idx=1), stored(1, group_idx=None)]) == [stored(1, group_idx=None)]


def test_what_one_worker_clears_nobody_can_use():
    engine = WorkerAggregator(2)
    for worker in (0, 1):
        engine.add(worker, [stored(1)])
    assert engine.add(0, [AllBlocksCleared()]) == [AllBlocksCleared()]
    assert engine.add(1, [AllBlocksCleared()]) == []
    assert WorkerAggregator(1).add(0, [AllBlocksCleared()]) == [AllBlocksCleared()]


@pytest.mark.parametrize("worker", [-1, 2])
def test_an_unknown_worker_is_refused(worker):
    with pytest.raises(InputError, match="not one of 0 to 1"):
        WorkerAggregator(2).add(worker, [])
    with pytest.raises(InputError, match="num_workers"):
        WorkerAggregator(0)


steps = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["store", "remove", "clear"]), st.sets(st.integers(0, 5))), max_size=40
)


@given(steps)
def test_the_engine_has_what_all_workers_have(steps):
    engine, workers, seen = WorkerAggregator(3), [set(), set(), set()], set()
    for worker, what, hashes in steps:
        event = {"store": stored(*hashes), "remove": removed(*hashes), "clear": AllBlocksCleared()}[what]
        for change in engine.add(worker, [event]):
            match change:
                case BlockStored():
                    assert seen.isdisjoint(change.block_hashes)
                    seen.update(change.block_hashes)
                case BlockRemoved():
                    assert seen.issuperset(change.block_hashes)
                    seen.difference_update(change.block_hashes)
                case AllBlocksCleared():
                    seen.clear()
        match what:
            case "store":
                workers[worker] |= hashes
            case "remove":
                workers[worker] -= hashes
            case "clear":
                workers[worker].clear()
        assert seen == set.intersection(*workers)
