"""A spec of somebody else's for vLLM's `OffloadingConnector`: it keeps nothing, and has a metric of its own. And a
connector of somebody else's, which has vLLM's inside."""

from collections.abc import Collection
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.v1.kv_offload.base import (
    CanonicalKVCaches,
    GPULoadStoreSpec,
    LoadStoreSpec,
    LookupResult,
    OffloadingGaugeMetadata,
    OffloadingManager,
    OffloadingMetricMetadata,
    OffloadingSpec,
    OffloadingWorker,
    OffloadKey,
    PrepareStoreOutput,
    ReqContext,
    RequestOffloadingContext,
    TransferResult,
)

METRIC = "other_requests"


class OtherOffloadingSpec(OffloadingSpec):
    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, OffloadingMetricMetadata]:
        return {METRIC: OffloadingGaugeMetadata("Requests so far.")}

    def get_manager(self) -> OffloadingManager:
        return _Nothing()

    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        return _Idle()


class _Nothing(OffloadingManager):
    def __init__(self) -> None:
        self._num_requests = 0

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        return LookupResult.MISS

    def prepare_load(self, keys: Collection[OffloadKey], req_context: ReqContext) -> LoadStoreSpec:
        raise AssertionError((keys, req_context))

    def prepare_store(self, keys: Collection[OffloadKey], req_context: ReqContext) -> PrepareStoreOutput | None:
        return None

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        self._num_requests += 1
        return RequestOffloadingContext()

    def get_stats(self) -> OffloadingConnectorStats:
        stats = OffloadingConnectorStats()
        stats.set_gauge(METRIC, self._num_requests)
        return stats


class _Idle(OffloadingWorker):
    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec) -> bool:
        raise AssertionError((job_id, src_spec, dst_spec))

    def submit_load(
        self, job_id: int, src_spec: LoadStoreSpec, dst_spec: GPULoadStoreSpec, expedited: bool = False
    ) -> bool:
        raise AssertionError((job_id, src_spec, dst_spec, expedited))

    def get_finished(self) -> list[TransferResult]:
        return []

    def wait(self, job_ids: set[int]) -> None:
        pass


class AroundOffloading(KVConnectorBase_V1):  # type: ignore[misc]
    """Hides vLLM's connector, and is not asked for more than it has."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.inside = OffloadingConnector(vllm_config, role, kv_cache_config)

    def register_kv_caches(self, kv_caches: Any) -> None:
        self.inside.register_kv_caches(kv_caches)


AroundOffloading.__abstractmethods__ = frozenset()
