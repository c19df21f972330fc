"""A Hypothesis state machine of the whole stack: device, host memory and tiers, with faults at every transfer.

    check_offloading(MODEL_EXAMPLES["window + full"], make_tiers)

It is the machine of the device cache (`octavo.testing.block_machine`) with offloading beside it, and with its proof:
what can be found has all its bytes, and they are nobody else's. Bytes come from tiers as often as from computing.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from octavo.blocks import KVCacheManager
from octavo.chunks import GroupOffloadConfig, OffloadKey
from octavo.host import NO_CHECKSUM
from octavo.offload import StorePolicy
from octavo.planning import KVCacheConfig
from octavo.policies import POLICIES
from octavo.testing import (
    ENCODER_INPUTS,
    IDENTITIES,
    PROMPTS,
    WHICH,
    BlockMachine,
    NaiveEngine,
    NaiveRequest,
    SmallModel,
    StepPlan,
)
from octavo.tiers import Tier
from rigs.faulty_tier import METHODS, FaultyTier, TierFault
from rigs.offload_engine import PATIENCE_S, OffloadingEngine

FEW_GROUPS = st.sets(st.integers(0, 3), min_size=1)
MakeTiers = Callable[[Sequence[GroupOffloadConfig]], Sequence[Tier]]


def check_offloading(
    model: SmallModel, make_tiers: MakeTiers, *, max_examples: int | None = None, step_count: int = 40
) -> None:
    """Runs the machine on a model with the tiers that are made for its groups."""
    plans = [model.plan(spare) for spare in (0.3, 0, 1.0)]
    chosen: dict[str, Any] = {"stateful_step_count": step_count}
    if max_examples is not None:
        chosen["max_examples"] = max_examples
    run_state_machine_as_test(
        partial(OffloadMachine, plans, make_tiers),  # type: ignore[arg-type]  # anything that makes a machine will do
        settings=settings(suppress_health_check=list(HealthCheck), deadline=None, **chosen),
    )


class OffloadMachine(BlockMachine):
    """The machine of the device cache, with offloading and its faults."""

    engine: OffloadingEngine

    def __init__(self, plans: Sequence[KVCacheConfig], make_tiers: MakeTiers) -> None:
        super().__init__(plans)
        self.make_tiers = make_tiers
        self.tiers: Sequence[FaultyTier] = ()

    @initialize(
        size=st.integers(0, 2),
        watches_events=st.booleans(),
        blocks_per_chunk=st.sampled_from([1, 2, 3]),
        chunks_in_memory=st.sampled_from([40, 12, 3]),
        policy=st.sampled_from(POLICIES.names()),
        store_policy=st.sampled_from(StorePolicy),
    )
    def set_up(
        self,
        size: int,
        watches_events: bool,
        blocks_per_chunk: int,
        chunks_in_memory: int,
        policy: str,
        store_policy: StorePolicy,
    ) -> None:
        super().set_up(size=size, is_caching=True, watches_events=watches_events)
        groups = [
            GroupOffloadConfig(
                spec=group.spec.rule,
                blocks_per_chunk=1 if group.spec.holds_checkpoints else blocks_per_chunk,
                page_size_bytes=max(8, group.page_bytes),
            )
            for group in self.config.groups
        ]
        self.tiers = [FaultyTier(tier) for tier in self.make_tiers(groups)]
        self.engine.attach(
            self.tiers, groups, chunks_in_memory=chunks_in_memory, policy=policy, store_policy=store_policy
        )

    def make_engine(self, manager: KVCacheManager, *, watches_events: bool) -> NaiveEngine:
        return OffloadingEngine(manager, watches_events=watches_events)

    # ---- time and faults ---------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.01, 0.01, 0.3, PATIENCE_S + 1]))
    def poll(self, seconds: float) -> None:
        self.engine.now += seconds
        self.engine.offload.poll(self.engine.now)

    @rule(is_stuck=st.booleans(), fails=st.booleans())
    def trouble_worker(self, is_stuck: bool, fails: bool) -> None:
        self.engine.worker.is_stuck, self.engine.worker.fails = is_stuck, fails

    @precondition(lambda self: self.tiers)
    @rule(which=WHICH, fault=st.sampled_from(TierFault))
    def trouble_tier(self, which: int, fault: TierFault) -> None:
        self.tiers[which % len(self.tiers)].fault = fault

    @precondition(lambda self: self.tiers)
    @rule(which=WHICH, methods=st.sets(st.sampled_from(METHODS)), is_late=st.booleans())
    def make_tier_raise(self, which: int, methods: set[str], is_late: bool) -> None:
        tier = self.tiers[which % len(self.tiers)]
        tier.raises, tier.raises_late = methods, is_late

    @rule(which=WHICH)
    def flip_a_bit(self, which: int) -> None:
        """In host memory, where a checksum watches over it: of a chunk that waits for nobody."""
        manager = self.engine.offloading_manager
        resident = manager._resident
        keys = sorted(resident.index)
        if not keys or manager.has_pending_work():
            return
        head = resident.index.find([OffloadKey(keys[which % len(keys)])])[0]
        if resident.table.checksums[head] != NO_CHECKSUM:
            self.engine.arena.view[head, which % 8] ^= 1

    @rule()
    def all_is_well_again(self) -> None:
        self.engine.worker.is_stuck = self.engine.worker.fails = False
        for tier in self.tiers:
            tier.get_well()

    # ---- turns: what a device forgets comes back ---------------------------------------------------------------

    @precondition(lambda self: len(self.engine.requests) < 4)
    @rule(data=st.data(), rounds=st.integers(1, 8))
    def turns(self, data: st.DataObject, rounds: int) -> None:
        """Requests one after the other, the later ones with the prefixes of former ones, which the device has
        forgotten more often than not."""
        for _ in range(rounds):
            if len(self.engine.requests) >= 4:
                return
            if data.draw(st.sampled_from([True, True, False]), label="device forgets"):
                self.device_forgets(groups=data.draw(st.none() | FEW_GROUPS))
            prompt, turn = data.draw(PROMPTS), data.draw(st.none() | WHICH, label="turn")
            identity, encoder = data.draw(IDENTITIES), data.draw(ENCODER_INPUTS)
            self.begin(prompt=prompt, identity=identity, encoder=encoder, turn=turn)
            self._serve_turn(data, self._pick(-1))
            self.engine.check()

    def _serve_turn(self, data: st.DataObject, request: NaiveRequest) -> None:
        """A request from its beginning to its end, alone in its steps, or a part of that."""
        for _ in range(data.draw(st.sampled_from([20, 20, 2, 0]), label="patience")):
            if self.engine.is_ready(request):
                break
            self.poll(seconds=0.01)
        else:
            return
        self._compute(request, num_decoded=data.draw(st.sampled_from([5, 0, 1, 12]), label="decoded"))
        if data.draw(st.sampled_from([True] * 4 + [False]), label="ends"):
            self.history.append(request.tokens[: request.num_known])
            self.engine.free(request)
        self.poll(seconds=0.01)

    @rule(groups=st.none() | FEW_GROUPS)
    def device_forgets(self, groups: set[int] | None) -> None:
        """What nobody holds, as if it had been evicted: of all groups, or of some."""
        pool = self.engine.manager.pool
        for group_idx in range(len(pool.indexes)):
            if groups is None or group_idx in groups:
                pool.forget_group(group_idx)

    def _compute(self, request: NaiveRequest, *, num_decoded: int) -> None:
        """As far as there is room."""
        engine, limits = self.engine, self.config.limits
        engine.look_up(request)
        start = request.plan.num_tokens if request.plan else 0
        last = min(request.num_known + num_decoded, limits.max_model_len - 2)
        while start < last and request.num_known < limits.max_model_len - 1:
            end = min(request.num_known, start + limits.max_step_tokens)
            end = engine.manager.cut_prefill(request.blocks, end, request.plan)
            if engine.schedule([StepPlan(request=request, num_tokens=end)]) != [True]:
                return
            engine.commit(request)
            start = request.computed

    @precondition(lambda self: self.engine.requests)
    @rule(which=WHICH)
    def abort(self, which: int) -> None:
        self.engine.abort(self._pick(which))

    @precondition(lambda self: self.engine.requests)
    @rule(which=WHICH)
    def wait_for_a_load(self, which: int) -> None:
        """Whatever hangs, a request is ready when its patience is over, unless others have the room it needs. Each of
        its chunks may renew it twice, where memory holds few of them at once."""
        request = self._pick(which)
        if request.blocks.is_started:
            return
        num_blocks = sum(len(blocks.hashes) for blocks in self.engine.watched.blocks_of(request.blocks))
        for _ in range(3 + 2 * num_blocks):
            if self.engine.is_ready(request):
                break
            self.engine.now += PATIENCE_S + 1
            self.engine.offload.poll(self.engine.now)
        else:
            assert self.engine.watched.is_busy() or self.engine.worker.is_stuck

    @precondition(lambda self: self.engine.requests)
    @rule(which=WHICH, respects_cuts=st.booleans(), really=st.sampled_from([False] * 4 + [True]))
    def run_alone(self, which: int, respects_cuts: bool, really: bool) -> None:
        if really:
            self._let_transfers_end()
            super().run_alone(which=which, respects_cuts=respects_cuts, really=True)

    def has_room_alone(self, request: NaiveRequest, *, respects_cuts: bool) -> bool:
        """All others wait, and would like to have their loads ahead of their turn. Stores that waited for memory go on
        meanwhile, and hold pages for a while: a step without room is tried again while some come back."""
        others = [other for other in self.engine.requests.values() if not other.blocks.is_started]
        for other in others:
            if other is not request:
                self.engine.is_ready(other)
        while not super().has_room_alone(request, respects_cuts=respects_cuts):
            was_lent = [self.engine.offload.call_in(other.blocks) for other in others]
            if not any(was_lent) and not self.engine.offload.holds_pages():
                return False
            self._let_copies_end()
        return True

    def teardown(self) -> None:
        if hasattr(self, "engine") and hasattr(self.engine, "offload"):
            self._let_transfers_end()
            super().teardown()
            self._let_transfers_end()
            engine = self.engine
            engine.now += 100.0
            engine.offload.poll(engine.now)  # tiers that were left alone for raising give back what they held
            engine.check()
            assert not +engine.watched.held, "pages are still held"
            status = engine.offloading_manager.status()
            assert not status.chunks_being_stored
            assert not status.chunks_being_promoted
            assert not any(lower.quarantined_heads for lower in engine.offloading_manager._below.lowers)
            engine.offload.close()

    # ---- helpers -----------------------------------------------------------------------------------------------

    def _plan_step(self, data: st.DataObject, request: NaiveRequest) -> StepPlan | None:
        if not request.blocks.is_started and not self.engine.is_ready(request):
            return None
        return super()._plan_step(data, request)

    def _let_copies_end(self) -> None:
        """Those between device and memory, which hold pages for a while."""
        self.engine.worker.is_stuck = False
        for _ in range(1000):
            self.engine.offload.poll(self.engine.now)
            if not self.engine.offload.holds_pages():
                return
        raise AssertionError("copies do not end")

    def _let_transfers_end(self) -> None:
        self.all_is_well_again()
        for request in self.engine.requests.values():
            if not request.blocks.is_started:
                self.engine.offload.aborted(request.blocks)
        for _ in range(20_000):
            self.engine.now += 0.1
            self.engine.offload.poll(self.engine.now)
            status = self.engine.offloading_manager.status()
            if not status.chunks_being_promoted:
                assert not self.engine.offloading_manager._promotions._held, (
                    "chunks are held, and nobody waits for them"
                )
            if not self.engine.offload.has_pending_work():
                break
        else:
            raise AssertionError("transfers do not end")
