"""The contract of a `Tier`, as a suite that its test subclasses:

class TestNaiveTier(TierSuite):
    def open_tier(self, folder, namespace):
        return NaiveTier(self.budget_bytes)

Bytes are compared by content; a state machine (`tier_machine`) runs the tier against a naive dict, restarts included.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from octavo.chunks import ALL_BLOCKS, NO_TENANT, ChunkChain, SequenceNames
from octavo.testing.tier_driver import (
    ALL_KEYS,
    MAX_CHUNK_BYTES,
    NAMESPACE,
    OTHER_NAMESPACE,
    UNTOUCHED,
    Chunk,
    TierDriver,
    chunks,
    key,
)
from octavo.testing.tier_machine import check_tier
from octavo.tiers import Tier, TierState

_HALF = 0b0101


class TierSuite:
    """The contract of a tier. A subclass opens one; it may override a test with a reason."""

    is_durable: ClassVar[bool] = False
    """Whether flushed chunks are there when the same folder is opened again."""
    budget_bytes: ClassVar[int] = 1 << 18
    """The budget of the tier that `open_tier` makes: room for at least six chunks of `MAX_CHUNK_BYTES`."""
    machine_examples: ClassVar[int] = 25
    """The number of runs of the state machine."""

    def open_tier(self, folder: Path, namespace: bytes) -> Tier:
        """A tier for chunks of up to `MAX_CHUNK_BYTES`."""
        raise TypeError(f"{type(self).__name__} must override open_tier()")

    def bytes_on_medium(self, folder: Path) -> int:
        """The bytes on the medium, as counted from outside, by the sizes of files for example."""
        return 0

    def await_progress(self, tier: Tier) -> None:
        """Lets the tier's threads run; a tier that can be waited for overrides it."""
        time.sleep(0)

    def check_invariants(self, tier: Tier) -> None:
        """Called after each step of the state machine; a tier that can check itself overrides it."""

    @contextmanager
    def driver(self, folder: Path, namespace: bytes = NAMESPACE) -> Iterator[TierDriver]:
        tier = self.open_tier(folder, namespace)
        try:
            yield TierDriver(tier, self.await_progress)
        finally:
            tier.close()

    def test_what_was_stored_is_found_and_loaded(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            wanted = [*chunks(range(3)), *chunks([3], _HALF)]
            assert driver.found(range(4)) == [0, 0, 0, 0]
            assert driver.store(wanted) == frozenset()
            assert driver.found(range(5)) == [ALL_BLOCKS, ALL_BLOCKS, ALL_BLOCKS, _HALF, 0]
            lengths = [len(chunk.content) for chunk in wanted]
            assert driver.tier.stored_bytes([chunk.key for chunk in wanted] + [key(9)]) == [*lengths, 0]
            assert driver.load(wanted[::-1]) == frozenset()
            assert driver.announced == {chunk.key for chunk in wanted}
            assert driver.tier.status().num_chunks == len(wanted)

    def test_an_answer_comes_and_is_remembered(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            assert not driver.tier.ask(ALL_KEYS, wants_answer=False)
            assert driver.tier.ask(ALL_KEYS) == driver.tier.asks_ahead
            driver.await_answer()
            assert not driver.tier.ask(ALL_KEYS), "a miss is remembered"
            assert driver.tier.lookup([key(0)]) == [0]

    def test_a_load_asks_for_what_was_stored_or_fails(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            driver.store(chunks([0, 1]))
            asked = [Chunk(key(0)), Chunk(key(1), _HALF), Chunk(key(2)), Chunk(key(1))]
            lengths = [len(asked[0].content), *(len(chunk.content) for chunk in asked[1:3]), 100]
            assert driver.load(asked, lengths) == {1, 2, 3}

    def test_a_key_that_is_there_is_replaced(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            driver.store(chunks([0], _HALF))
            driver.store(chunks([0]))
            assert driver.found([0]) == [ALL_BLOCKS]
            assert driver.load(chunks([0])) == frozenset()
            assert driver.load(chunks([0], _HALF)) == {0}
            assert driver.tier.status().num_chunks == 1
            assert driver.announced == {key(0)}

    def test_memory_that_went_wrong_is_not_stored(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            driver.store(chunks([0]))
            assert driver.finish(driver.submit_store(chunks(range(4)), damaged={0, 2})) == {0, 2}
            assert driver.found([1, 2, 3]) == [ALL_BLOCKS, 0, ALL_BLOCKS]
            assert driver.load(chunks([1, 3])) == frozenset()

    def test_remove_and_reset_forget(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            driver.store(chunks(range(4)))
            driver.tier.remove([key(1), key(99)])
            assert driver.found(range(4)) == [ALL_BLOCKS, 0, ALL_BLOCKS, ALL_BLOCKS]
            driver.poll()
            assert driver.announced == {key(0), key(2), key(3)}
            driver.tier.reset()
            assert driver.found(range(4)) == [0, 0, 0, 0]
            driver.settle()
            assert driver.announced == set()
            assert driver.store(chunks([2])) == frozenset()
            assert driver.found(range(4)) == [0, 0, ALL_BLOCKS, 0]
            assert driver.load(chunks([2])) == frozenset()

    def test_an_announcement_tells_all_that_is_there_once(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            if type(driver.tier).announce is Tier.announce:
                pytest.skip("the tier announces nothing")
            driver.store([*chunks(range(5)), *chunks([5], _HALF)])
            driver.tier.remove([key(1), key(4)])
            driver.announce()
            driver.tier.remove([key(2), key(3)])
            job = driver.submit_store([*chunks([0, 3, 4]), *chunks([5, 6], _HALF)])
            assert driver.tier.flush(60.0), "so that they are replaced before they were told"
            assert driver.finish(job) == frozenset()
            driver.settle()
            assert driver.announced == driver.followed == {key(number) for number in (0, 3, 4, 5, 6)}
            assert not any(driver.tier.take_changes()), "it ends"

    def test_what_was_kept_is_announced_after_a_restart(self, tmp_path: Path) -> None:
        if not self.is_durable:
            pytest.skip("the medium keeps nothing")
        with self.driver(tmp_path) as driver:
            driver.store(chunks(range(3)))
        with self.driver(tmp_path) as driver:
            assert not any(driver.tier.take_changes()), "nobody has asked"
            if type(driver.tier).announce is Tier.announce:
                pytest.skip("the tier announces nothing")
            driver.await_answer()
            driver.announce()
            driver.tier.remove([key(1)])
            driver.settle()
            assert driver.announced == {key(0), key(2)}

    def test_a_reset_reaches_stores_under_way(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            driver.submit_store(chunks(range(4)))
            driver.tier.reset()
            driver.settle()
            assert driver.found(range(4)) == [0, 0, 0, 0]

    def test_a_change_and_its_opposite_are_no_change(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            driver.store(chunks([0]))
            driver.tier.remove([key(0)])
            job = driver.submit_store(chunks([0]))
            driver.finish(job)
            assert driver.announced == {key(0)}
            driver.tier.remove([key(0)])
            driver.take_changes()
            assert not any(driver.tier.take_changes())
            assert driver.announced == set()

    def test_a_cancelled_job_is_not_reported_and_its_memory_rests(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            driver.store(chunks(range(4)))
            load, store = driver.submit_load(chunks(range(4))), driver.submit_store(chunks(range(4, 6)))
            assert load is not None
            assert store is not None
            memory = driver.cancel(load)
            driver.cancel(store)
            for piece in memory:
                piece[:] = bytes([UNTOUCHED]) * len(piece)
            driver.settle()
            assert all(set(piece) == {UNTOUCHED} for piece in memory)
            assert not {load, store} & driver.failed.keys()
            driver.cancel(999)

    def test_touching_and_removing_unknown_keys_is_fine(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            driver.tier.touch([key(1)])
            driver.tier.remove([key(1)])
            driver.settle()
            assert driver.announced == set()

    def test_a_full_tier_takes_more_and_says_what_gave_way(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            rounds = 4 * self.budget_bytes // MAX_CHUNK_BYTES
            for number in range(rounds):
                assert driver.store(chunks([number])) == frozenset()
                self._check_budget(driver.tier, tmp_path)
            driver.settle()
            found = {key(number) for number in range(rounds) if driver.found([number]) != [0]}
            assert driver.announced == found
            assert 0 < len(found) < rounds
            assert driver.load([Chunk(k) for k in found]) == frozenset()

    def test_its_queue_is_bounded(self, tmp_path: Path) -> None:
        """Of too many stores it may refuse some. It reports all others, and goes on."""
        with self.driver(tmp_path) as driver:
            jobs = [driver.submit_store(chunks([number % 5])) for number in range(3000)]
            assert driver.tier.status().bytes_used <= self.budget_bytes
            driver.settle()
            assert {job for job in jobs if job is not None} == driver.failed.keys()
            assert driver.store(chunks([0])) == frozenset()

    def test_status_is_ok(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            status = driver.tier.status()
            assert (status.state, status.reason, status.num_chunks) == (TierState.OK, "", 0)
            assert status.bytes_used <= status.bytes_budget <= self.budget_bytes

    def test_closing_twice(self, tmp_path: Path) -> None:
        tier = self.open_tier(tmp_path, NAMESPACE)
        tier.close()
        tier.close()

    def test_it_is_there_again(self, tmp_path: Path) -> None:
        if not self.is_durable:
            pytest.skip("the medium keeps nothing")
        with self.driver(tmp_path) as driver:
            driver.store([*chunks(range(5)), *chunks([5], _HALF)])
            driver.tier.remove([key(0)])
        with self.driver(tmp_path, OTHER_NAMESPACE) as driver:
            assert driver.found(range(6)) == [0] * 6
            driver.store(chunks([7]))
        with self.driver(tmp_path) as driver:
            assert driver.found([1, 2, 3, 4, 5, 7]) == [ALL_BLOCKS] * 4 + [_HALF, 0]
            assert driver.load([*chunks(range(1, 5)), *chunks([5], _HALF)]) == frozenset()

    def test_windows_and_states_alone_are_found_without_a_beginning(self, tmp_path: Path) -> None:
        """They need nothing of what was long before."""
        if not self.is_durable:
            pytest.skip("the medium keeps nothing")
        keys = [key(number) for number in range(2000)]
        sequence = SequenceNames(NO_TENANT, [ChunkChain(16, keys, is_prefix=False)])
        with self.driver(tmp_path) as driver:
            driver.tier.ask(sequence, wants_answer=False)
            assert driver.store(chunks([1990])) == frozenset()
        with self.driver(tmp_path) as driver:
            driver.poll_until(lambda: not driver.tier.ask(sequence), "an answer")
            assert driver.tier.lookup([key(1990)]) == [ALL_BLOCKS]

    def test_a_reset_lasts(self, tmp_path: Path) -> None:
        if not self.is_durable:
            pytest.skip("the medium keeps nothing")
        with self.driver(tmp_path) as driver:
            driver.store(chunks(range(5)))
            driver.tier.reset()
            driver.store(chunks([9]))
            driver.poll_until(driver.tier.is_reset_durable, "the reset to be durable")
        with self.driver(tmp_path) as driver:
            assert driver.found([*range(5), 9]) == [0] * 5 + [ALL_BLOCKS]

    def test_against_a_dict(self, tmp_path: Path) -> None:
        """The state machine."""
        check_tier(self, tmp_path, max_examples=self.machine_examples)

    def _check_budget(self, tier: Tier, folder: Path) -> None:
        status = tier.status()
        assert self.bytes_on_medium(folder) <= status.bytes_used <= status.bytes_budget
