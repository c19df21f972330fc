"""A Hypothesis state machine of the whole stack: device, host memory and tiers, with faults at every transfer.

    check_offloading(MODEL_EXAMPLES["window + full"], make_tiers)

It is the machine of the device cache (`octavo.testing.block_machine`) with offloading beside it, and with its proof:
what can be found has all its bytes, and they are nobody else's. Bytes come from tiers as often as from computing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from octavo.blocks import DeviceCache, KVCacheManager, RequestBlocks, Reservation
from octavo.chunks import GroupOffloadConfig, OffloadKey
from octavo.host import NO_CHECKSUM, HostArena
from octavo.ids import GroupIdx
from octavo.offload import OffloadingManager, OffloadScheduler, Readiness, SchedulerLimits, StorePolicy
from octavo.planning import KVCacheConfig
from octavo.policies import POLICIES, make_policy
from octavo.specs import ceil_div
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
from rigs.naive_worker import NaiveWorker

PATIENCE_S = 5.0
_SLOT_BYTES = 64
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


class WatchedDevice(DeviceCache):
    """Counts what it holds."""

    def __init__(self, manager: KVCacheManager) -> None:
        super().__init__(manager)
        self.held: Counter[tuple[int, int]] = Counter()

    def reserve(
        self, request: RequestBlocks, there: Sequence[Sequence[int]], missing: Sequence[Sequence[int]]
    ) -> Reservation | None:
        reservation = super().reserve(request, there, missing)
        if reservation is not None:
            self.held.update(_rows_of(reservation))
        return reservation

    def give_back(self, reservation: Reservation) -> None:
        super().give_back(reservation)
        self.held.subtract(_rows_of(reservation))

    def hold(self, group_idx: GroupIdx, rows: Sequence[int]) -> None:
        super().hold(group_idx, rows)
        self.held.update((group_idx, row) for row in rows)

    def let_go(self, group_idx: GroupIdx, rows: Sequence[int]) -> None:
        super().let_go(group_idx, rows)
        self.held.subtract((group_idx, row) for row in rows)


def _rows_of(reservation: Reservation) -> list[tuple[int, int]]:
    there = [(group, row) for group, rows in reservation.held for row in rows]
    return there + [(group, row) for group, d in enumerate(reservation.destinations) for row in d.values()]


class OffloadingEngine(NaiveEngine):
    """A naive engine that offloads."""

    def __init__(self, manager: KVCacheManager, *, watches_events: bool = False) -> None:
        super().__init__(manager, watches_events=watches_events)
        self.now = 100.0

    def attach(
        self,
        tiers: Sequence[Tier],
        groups: Sequence[GroupOffloadConfig],
        *,
        chunks_in_memory: int,
        policy: str,
        store_policy: StorePolicy,
        logs_changes: bool = False,
    ) -> None:
        """Builds the slower side."""
        slots_of_largest = max(ceil_div(group.chunk_bytes, _SLOT_BYTES) for group in groups)
        self.arena = HostArena(chunks_in_memory * slots_of_largest, _SLOT_BYTES)
        self.offloading_manager = OffloadingManager(
            self.arena,
            groups,
            make_policy(policy, groups, self.arena.num_slots),
            tiers,
            logs_changes=logs_changes,
        )
        self.watched = WatchedDevice(self.manager)
        page_classes = [group.page_class for group in self.config.groups]
        self.worker = NaiveWorker(self.device, page_classes, groups, self.arena.view)
        self.offload = OffloadScheduler(
            self.watched,
            self.offloading_manager,
            self.worker,
            groups,
            limits=SchedulerLimits(patience_s=PATIENCE_S, store_policy=store_policy, free_share_wanted=0.3),
        )

    def is_ready(self, request: NaiveRequest) -> bool:
        return self.offload.prepare(request.blocks, self.now) is Readiness.READY

    def schedule(self, step_plans: Iterable[StepPlan]) -> list[bool]:
        plans = list(step_plans)
        self.offload.poll(self.now)
        new = [plan.request for plan in plans if not plan.request.blocks.is_started]
        answers = super().schedule(plans)
        for request in new:
            if request.blocks.is_started:
                self.offload.started(request.blocks)
            else:
                self.offload.call_in(request.blocks)
        return answers

    def commit(self, request: NaiveRequest) -> None:
        super().commit(request)
        self.offload.computed(request.blocks, self.now)

    def decode_step(self, requests: Sequence[NaiveRequest], sampled: Sequence[int]) -> list[NaiveRequest]:
        refused = super().decode_step(requests, sampled)
        for request in requests:
            self.offload.computed(request.blocks, self.now)
        return refused

    def free(self, request: NaiveRequest) -> None:
        super().free(request)
        self.offload.finished(request.blocks, self.now)

    def abort(self, request: NaiveRequest) -> None:
        super().free(request)
        self.offload.aborted(request.blocks)

    def preempt(self, request: NaiveRequest) -> None:
        self.offload.preempted(request.blocks, self.now)
        super().preempt(request)

    def reset(self) -> None:
        super().reset()
        self.offload.reset()

    def held_by_transfers(self) -> Iterable[tuple[int, int]]:
        return self.watched.held.elements()

    def check(self) -> None:
        super().check()
        self.offloading_manager.check_invariants()
        for _, status in self.offloading_manager.status().tiers:
            assert status.bytes_used <= status.bytes_budget


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
        """Whatever hangs, a request is ready when its patience is over, unless others have the room it needs."""
        request = self._pick(which)
        if request.blocks.is_started:
            return
        for _ in range(3):
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

    def has_room_alone(self, step: StepPlan) -> bool:
        """All others wait, and would like to have their loads ahead of their turn."""
        others = [request for request in self.engine.requests.values() if not request.blocks.is_started]
        for other in others:
            if other is not step.request:
                self.engine.is_ready(other)
        if super().has_room_alone(step):
            return True
        for other in others:
            self.engine.offload.call_in(other.blocks)
        self._let_copies_end()
        return super().has_room_alone(step)

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
            assert not any(lower.quarantined_heads for lower in engine.offloading_manager._lowers)
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
            if not self.engine.offload.has_pending_work():
                break
        else:
            raise AssertionError("transfers do not end")
