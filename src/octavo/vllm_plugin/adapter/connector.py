"""vLLM's `OffloadingConnector`, but a load that failed is told to the scheduler instead of ending the engine.

"kv_connector": "OctavoConnector", "kv_connector_module_path": "octavo.vllm_plugin",
"kv_load_failure_policy": "recompute"

vLLM would never serve some requests whose loads failed. It reserves device pages for a request from the beginning of
its load until it is scheduled, and begins a load only if there is room beside all reservations. Its scheduler asks the
requests that hold pages first, then the others, and goes no further than the first one that finds no room. A request
whose load failed gives its pages back, keeps its reservation, and needs more pages than a load would, as its windows
are computed from the first token on. If nothing runs, three things may last for ever:

1. It loads again, and is refused for its own reservation. So it computes.
2. It stays first among those that hold pages, where others have loaded and wait for it to find room. So it is put off
   once, which takes it from there.
3. Another one that is asked before it would load, and is refused for its reservation. So the others' loads wait.
"""

from typing import Any, TypeAlias

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole, KVConnectorTransferResults
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.v1.kv_cache_interface import KVCacheConfig

from octavo.errors import InputError
from octavo.vllm_plugin.adapter.metrics import SharedPromMetrics
from octavo.vllm_plugin.adapter.worker import OctavoWorker

_SPEC_NAME = "OctavoOffloadingSpec"
_Matched: TypeAlias = tuple[int | None, bool]
"""Tokens that can be loaded, None if vLLM is to ask again; and whether between steps."""
_Finished: TypeAlias = tuple[bool, dict[str, Any] | None]


class OctavoConnector(OffloadingConnector):
    """Reports requests whose loads failed: vLLM computes them, or fails them, as `kv_load_failure_policy` says."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        transfer = vllm_config.kv_transfer_config
        spec_name = transfer.kv_connector_extra_config.get("spec_name") if transfer else None
        if spec_name != _SPEC_NAME:
            raise InputError(
                f'OctavoConnector needs "spec_name": "{_SPEC_NAME}" in kv_connector_extra_config, not {spec_name!r}'
            )
        if transfer.kv_connector_extra_config.get("sync_load_budget_bytes"):
            raise InputError(
                "OctavoConnector loads nothing within a step, as vLLM computes nothing again that fails there: leave "
                'sync_load_budget_bytes out, or take "kv_connector": "OffloadingConnector"'
            )
        super().__init__(vllm_config, role, kv_cache_config)
        self._loading: set[str] = set()
        """Requests that have pages for a load and are not scheduled yet."""
        self._failed: dict[str, bool] = {}
        """Requests whose loads failed, and whether each has been put off."""

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: VllmConfig, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any
    ) -> SharedPromMetrics:
        """Another part of vLLM's `MultiConnector` may be its `OffloadingConnector`, with the same metrics."""
        make = super().build_prom_metrics
        return SharedPromMetrics(make, vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> _Matched:
        has_been_put_off = self._failed.get(request.request_id)
        if has_been_put_off is None:
            found: _Matched = super().get_num_new_matched_tokens(request, num_computed_tokens)
            return (None, False) if found[0] and self._failed else found
        if not has_been_put_off:
            self._failed[request.request_id] = True
            return None, False
        skips = request.skip_reading_prefix_cache
        request.skip_reading_prefix_cache = True  # the device's has been read
        try:
            computes: _Matched = super().get_num_new_matched_tokens(request, num_computed_tokens)
            return computes
        finally:
            request.skip_reading_prefix_cache = skips

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        super().update_state_after_alloc(request, blocks, num_external_tokens)
        if num_external_tokens:
            self._loading.add(request.request_id)
        else:
            self._forget(request)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """vLLM asserts that the tail of a prompt beside states ends before the limit that a client has set."""
        state = getattr(scheduler_output, "kv_connector_block_state", None)
        tails = getattr(state, "boundary_state_offloads", None)
        if state is None or not tails:
            return super().build_connector_meta(scheduler_output)
        state.boundary_state_offloads = {name: self._within_limit(name, of_one) for name, of_one in tails.items()}
        try:
            return super().build_connector_meta(scheduler_output)
        finally:
            state.boundary_state_offloads = tails  # other connectors see them too

    def _within_limit(self, request_id: str, tails: list[Any]) -> list[Any]:
        status = self.connector_scheduler._req_status.get(request_id)  # noqa: SLF001 - nobody else knows the limit
        limit = None if status is None else status.max_offload_tokens
        return tails if limit is None else [tail for tail in tails if tail[2] <= limit]

    def update_connector_output(self, connector_output: Any) -> None:
        super().update_connector_output(connector_output)
        self._failed |= dict.fromkeys(connector_output.failed_recving & self._loading, False)

    def request_finished(self, request: Any, block_ids: Any) -> _Finished:
        self._forget(request)
        finished: _Finished = super().request_finished(request, block_ids)
        return finished

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> _Finished:
        self._forget(request)
        finished: _Finished = super().request_finished_all_groups(request, block_ids)
        return finished

    def _forget(self, request: Any) -> None:
        """The request is scheduled, or has ended."""
        self._loading.discard(request.request_id)
        self._failed.pop(request.request_id, None)

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        connector = self.connector_worker
        assert connector is not None, "vLLM asks workers"
        assert isinstance(connector.worker, OctavoWorker), "the spec is ours"
        request_of = dict(connector._load_jobs)  # noqa: SLF001 - nobody else knows whose load a job is
        results = super().get_transfer_results(finished_req_ids)
        results.failed_recving |= {request_of[job_id] for job_id in connector.worker.take_failed_loads()}
        return results
