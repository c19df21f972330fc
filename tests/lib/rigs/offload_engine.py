"""A naive engine that offloads, and a device that counts what it holds."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from octavo.blocks import DeviceCache, KVCacheManager, RequestBlocks, Reservation
from octavo.chunks import GroupOffloadConfig
from octavo.host import HostArena
from octavo.ids import GroupIdx
from octavo.offload import (
    OffloadedRequest,
    OffloadingManager,
    OffloadScheduler,
    OffloadSchedulerLimits,
    Readiness,
    StorePolicy,
)
from octavo.policies import make_policy
from octavo.specs import ceil_div
from octavo.testing import NaiveEngine, NaiveRequest, StepPlan
from octavo.tiers import Tier
from rigs.naive_worker import NaiveWorker

PATIENCE_S = 5.0
_SLOT_BYTES = 64


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
        quotas: Mapping[bytes, int] = MappingProxyType({}),
        retain_share: float = 0.25,
        may_persist: Callable[[OffloadedRequest], bool] = lambda _: True,
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
            quotas=quotas,
            retain_share=retain_share,
        )
        self.watched = WatchedDevice(self.manager)
        page_classes = [group.page_class for group in self.config.groups]
        self.worker = NaiveWorker(self.device, page_classes, groups, self.arena.view)
        self.offload = OffloadScheduler(
            self.watched,
            self.offloading_manager,
            self.worker,
            groups,
            may_persist=may_persist,
            limits=OffloadSchedulerLimits(patience_s=PATIENCE_S, store_policy=store_policy, free_share_wanted=0.3),
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
                loaded = sum(self.offload.resumed_from(request.blocks).values())
                assert loaded <= request.blocks.num_computed_tokens, "more was loaded than resumed"
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
