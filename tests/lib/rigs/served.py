"""`Served`: the naive engine over a model of which one request fills most of the device."""

from octavo.blocks import KVCacheManager
from octavo.chunks import GroupOffloadConfig
from octavo.offload import StorePolicy
from octavo.testing import full, small_model, state, window
from rigs.offload_engine import PATIENCE_S, OffloadingEngine

MODELS = {
    "full": small_model(full()),
    "window + full": small_model(window(10), full()),
    "state + full": small_model(state(), full()),
}
HEAVY = {"heavy window + full": small_model(window(10, heads=32), full())}
PROMPT = list(range(30))
BOUNDARY = 28
"""The last one below the prompt's end, in blocks of 4."""
BLOCKS = BOUNDARY // 4


class Served(OffloadingEngine):
    """A model of which one request fills most of the device."""

    def __init__(self, model="full", *, tiers=(), chunks_in_memory=200, blocks_per_chunk=1, **options):
        super().__init__(KVCacheManager({**MODELS, **HEAVY}[model].plan(1.0)))
        groups = [
            GroupOffloadConfig(
                spec=group.spec.rule,
                blocks_per_chunk=1 if group.spec.holds_checkpoints else blocks_per_chunk,
                page_size_bytes=group.page_bytes,
            )
            for group in self.config.groups
        ]
        options = {"policy": "lru", "store_policy": StorePolicy.AT_BOUNDARIES, **options}
        self.attach(tiers, groups, chunks_in_memory=chunks_in_memory, **options)
        self.group_of = {group.kind: index for index, group in enumerate(self.config.groups)}

    @property
    def stats(self):
        return self.offload.stats()

    def poll(self, seconds=0.01):
        self.now += seconds
        self.offload.poll(self.now)

    def settle(self):
        while self.offload.has_pending_work():
            self.poll()

    def forget(self, *kinds):
        """As if the device had evicted what nobody holds of these groups; of all, if none is named."""
        for kind in kinds or self.group_of:
            self.manager.pool.forget_group(self.group_of[kind])

    def wait(self, request):
        """Until the request may start. It never waits for longer than its patience here."""
        give_up_at = self.now + PATIENCE_S + 1
        while not self.is_ready(request):
            assert self.now < give_up_at, "it waits for ever"
            self.poll()

    def serve_offloaded(self, tokens=PROMPT):
        """A request from its beginning to its end, and all that follows from it; where it resumed."""
        request = self.begin(tokens)
        self.wait(request)
        resumed = self.prefill(request)
        self.free(request)
        self.settle()
        return resumed

    def lose_memory(self):
        """As after a restart: only tiers have anything."""
        resident = self.offloading_manager._resident
        resident.drop([key for shard in resident.index.shards for key in shard])
        self.forget()

    def forget_all_but_tiers(self):
        """Others have taken all of memory."""
        self.serve_offloaded([1000 + i for i in range(90)])
        self.forget()
