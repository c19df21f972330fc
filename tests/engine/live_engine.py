"""An engine over the real offloading, whose progress is measured in every step.

Progress is counted without what was lost again: a step makes some when a choice gets further than it ever was, or
ends. So an engine that computes the same tokens over and over makes none, however busy it is.
"""

from hash_runner import HashEngine

from octavo.chunks import GroupOffloadConfig
from octavo.host import HostArena
from octavo.offload import OffloadingManager, OffloadScheduler, OffloadSchedulerLimits
from octavo.policies import make_policy
from octavo.specs import ceil_div
from rigs.faulty_tier import FaultyTier
from rigs.naive_tier import NaiveTier
from rigs.naive_worker import NaiveWorker
from rigs.offload_engine import WatchedDevice

LOAD_PATIENCE_S = 0.2
STEP_S = 0.02
"""Passes in every step, whether it computes or waits."""
_SLOT_BYTES = 64


class LiveEngine(HashEngine):
    """A `HashEngine` over host memory and one tier below it, on a clock that only steps move."""

    def __init__(self, model, *, chunks_in_memory, store_policy, **options):
        self.now = 100.0
        self.tokens_asked = self.tokens_computed = 0
        self.steps_without_progress = self.most_steps_without_progress = 0
        self._chunks_in_memory, self._store_policy = chunks_in_memory, store_policy
        self._most_computed = {}
        self._num_ended = 0
        super().__init__(model, make_offload=self._make_offload, clock=lambda: self.now, **options)

    def _make_offload(self, manager):
        groups = [
            GroupOffloadConfig(spec=group.spec.rule, blocks_per_chunk=1, page_size_bytes=max(8, group.page_bytes))
            for group in manager.config.groups
        ]
        slots_of_largest = max(ceil_div(group.chunk_bytes, _SLOT_BYTES) for group in groups)
        arena = HostArena(self._chunks_in_memory * slots_of_largest, _SLOT_BYTES)
        page_classes = [group.page_class for group in manager.config.groups]
        self.watched = WatchedDevice(manager)
        self.tier = FaultyTier(NaiveTier(1 << 30))
        self.worker = NaiveWorker(self.hash_runner, page_classes, groups, arena.view)
        policy = make_policy("resume_points", groups, arena.num_slots)
        return OffloadScheduler(
            self.watched,
            OffloadingManager(arena, groups, policy, [self.tier]),
            self.worker,
            groups,
            limits=OffloadSchedulerLimits(
                patience_s=LOAD_PATIENCE_S, store_policy=self._store_policy, free_share_wanted=0.3
            ),
        )

    def held_by_transfers(self):
        return self.watched.held.elements()

    def add(self, name, prompt, max_tokens=4, **params):
        super().add(name, prompt, max_tokens, **params)
        self.tokens_asked += len(prompt) + max_tokens * params.get("n", 1)

    def run_step(self):
        num_steps = len(self.hash_runner.steps)
        super().run_step()
        self.now += STEP_S
        self.tokens_computed += sum(count for step in self.hash_runner.steps[num_steps:] for _, count in step)
        self.steps_without_progress += 1
        if self._has_progressed() or not self.has_unfinished or self.worker.is_stuck:
            self.steps_without_progress = 0
        self.most_steps_without_progress = max(self.most_steps_without_progress, self.steps_without_progress)

    def _has_progressed(self):
        num_ended, self._num_ended = self._num_ended, sum(o[-1].is_finished for o in self.outputs.values())
        is_further = self._num_ended > num_ended
        for choice in (*self.scheduler.running, *self.scheduler.waiting):
            computed = choice.blocks.num_computed_tokens
            if computed > self._most_computed.get(choice, 0):
                self._most_computed[choice] = computed
                is_further = True
        return is_further
