"""A Hypothesis state machine that runs a `Tier` against a naive dict, restarts included.

A tier decides itself what it keeps, so the dict tells which answers are allowed: a mask under which the key was stored
since the last reset, or a miss. Which answer is required follows from the tier's changes: once nothing is under way, a
key is found if and only if it was announced as stored and not as removed.
"""

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from octavo.chunks import ALL_BLOCKS, OffloadKey
from octavo.testing.tier_driver import ALL_KEYS, NAMESPACE, Chunk, TierDriver, key
from octavo.tiers import Tier

_NUM_KEYS = 60
_ADDED = 4
_NUMBERS = st.integers(0, _NUM_KEYS - 1)
_MASKS = st.sampled_from([ALL_BLOCKS, ALL_BLOCKS, 0b0001, 0b0110])
_CHUNKS = st.lists(st.builds(lambda n, mask: Chunk(key(n), mask), _NUMBERS, _MASKS), max_size=8)
_RUNS = st.builds(lambda first, n: [Chunk(key((first + i) % _NUM_KEYS)) for i in range(n)], _NUMBERS, st.integers(1, 8))
_KEYS = [key(number) for number in range(_NUM_KEYS)]


class TierRig(Protocol):
    """What the machine needs of a `TierSuite`; the suite documents it."""

    is_durable: ClassVar[bool]
    budget_bytes: ClassVar[int]

    def open_tier(self, folder: Path, namespace: bytes) -> Tier: ...

    def bytes_on_medium(self, folder: Path) -> int: ...

    def await_progress(self, tier: Tier) -> None: ...

    def check_invariants(self, tier: Tier) -> None: ...


def check_tier(suite: TierRig, folder: Path, *, max_examples: int, step_count: int = 40) -> None:
    """Runs the machine on a suite's tier. Fails with the shortest sequence of calls that goes wrong."""
    run_state_machine_as_test(
        partial(TierMachine, suite, folder),  # type: ignore[arg-type]  # anything that makes a machine will do
        settings=settings(
            suppress_health_check=list(HealthCheck),
            deadline=None,
            max_examples=max_examples,
            stateful_step_count=step_count,
        ),
    )


class TierMachine(RuleBasedStateMachine):
    """A machine over one tier in its own folder."""

    def __init__(self, suite: TierRig, folder: Path) -> None:
        super().__init__()
        self._suite = suite
        self._folder = Path(tempfile.mkdtemp(dir=folder))
        self._driver: TierDriver
        self._masks: dict[OffloadKey, set[int]] = {}
        """By key, the masks under which it was stored since the last reset."""
        self._num_added = 0

    @initialize()
    def open(self) -> None:
        self._driver = TierDriver(self._suite.open_tier(self._folder, NAMESPACE), self._suite.await_progress)
        self._driver.adopt(_KEYS)

    def teardown(self) -> None:
        if hasattr(self, "_driver"):
            self._driver.tier.close()
        shutil.rmtree(self._folder, ignore_errors=True)  # cancelled chunks may still be written

    @rule()
    def add_run(self) -> None:
        """The next chunks of a long sequence, so that there is something to find. Hypothesis calls this rule most: it
        has no arguments, and the first name."""
        self.store([Chunk(key((self._num_added + i) % _NUM_KEYS)) for i in range(_ADDED)])
        self._num_added += _ADDED
        self._driver.poll_until(lambda: not self._driver.stores, "the run to be stored")

    @rule(wanted=_CHUNKS | _RUNS)
    def store(self, wanted: list[Chunk]) -> None:
        if self._driver.submit_store(wanted) is not None:
            for chunk in wanted:
                self._masks.setdefault(chunk.key, set()).add(chunk.held_blocks)

    @rule(wanted=_CHUNKS | _RUNS)
    def load(self, wanted: list[Chunk]) -> None:
        self._driver.submit_load(wanted)

    @rule(numbers=st.lists(_NUMBERS, max_size=4))
    def load_what_is_found(self, numbers: list[int]) -> None:
        keys = [key(number) for number in numbers]
        masks = self._driver.tier.lookup(keys)
        self._driver.submit_load([Chunk(k, mask) for k, mask in zip(keys, masks, strict=True) if mask])

    @rule(which=st.integers(0, 7))
    def cancel(self, which: int) -> None:
        under_way = [*self._driver.stores, *self._driver.loads]
        if which < len(under_way):
            self._driver.cancel(under_way[which])

    @rule()
    def poll(self) -> None:
        self._driver.poll()

    @rule(numbers=st.lists(_NUMBERS, max_size=4))
    def touch(self, numbers: list[int]) -> None:
        self._driver.tier.touch([key(number) for number in numbers])

    @rule(numbers=st.lists(_NUMBERS, min_size=1, max_size=4))
    def remove(self, numbers: list[int]) -> None:
        keys = [key(number) for number in numbers]
        self._driver.tier.remove(keys)
        assert self._driver.tier.lookup(keys) == [0] * len(keys)

    @rule()
    def reset(self) -> None:
        self._driver.tier.reset()
        self._masks.clear()
        assert not any(self._driver.tier.lookup(_KEYS))

    @rule()
    def ask(self) -> None:
        """Asks for chunks. Answers may come at any time, and change nothing that is known."""
        self._driver.tier.ask(ALL_KEYS)

    @rule()
    def announce(self) -> None:
        """Lets the tier announce all again, as for consumers that forgot."""
        if type(self._driver.tier).announce is not Tier.announce:
            self._driver.announce()

    @rule()
    def settle(self) -> None:
        self._driver.settle()
        found = self._found()
        assert found.keys() == self._driver.announced == self._driver.followed
        wanted = [Chunk(k, mask) for k, mask in found.items()]
        assert self._driver.load(wanted) == frozenset(), "what is found can be loaded"

    @precondition(lambda self: self._suite.is_durable)
    @rule()
    def restart(self) -> None:
        self._driver.settle()
        before = self._found()
        self._driver.tier.close()
        self.open()
        after = self._found()
        assert before.items() <= after.items(), "what was flushed is there again"

    @invariant()
    def answers_what_it_may(self) -> None:
        if hasattr(self, "_driver"):
            for k, mask in self._found().items():
                assert mask in self._masks.get(k, ()), f"{k!r} was never stored with mask {mask:b}"

    @invariant()
    def keeps_its_budget(self) -> None:
        if hasattr(self, "_driver"):
            status = self._driver.tier.status()
            assert self._suite.bytes_on_medium(self._folder) <= status.bytes_budget
            assert status.bytes_used <= status.bytes_budget <= self._suite.budget_bytes

    @invariant()
    def agrees_with_itself(self) -> None:
        if hasattr(self, "_driver"):
            self._suite.check_invariants(self._driver.tier)

    def _found(self) -> dict[OffloadKey, Any]:
        masks = self._driver.tier.lookup(_KEYS)
        return {k: mask for k, mask in zip(_KEYS, masks, strict=True) if mask}
