"""vLLM's `OffloadingConnector`, but a load that failed is told to the scheduler instead of ending the engine.

"kv_connector": "OctavoConnector", "kv_connector_module_path": "octavo.vllm_plugin",
"kv_load_failure_policy": "recompute"
"""

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole, KVConnectorTransferResults
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.v1.kv_cache_interface import KVCacheConfig

from octavo.errors import InputError
from octavo.vllm_plugin.adapter.worker import OctavoWorker

_SPEC_NAME = "OctavoOffloadingSpec"


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

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        connector = self.connector_worker
        assert connector is not None, "vLLM asks workers"
        assert isinstance(connector.worker, OctavoWorker), "the spec is ours"
        request_of = dict(connector._load_jobs)  # noqa: SLF001 - nobody else knows whose load a job is
        results = super().get_transfer_results(finished_req_ids)
        results.failed_recving |= {request_of[job_id] for job_id in connector.worker.take_failed_loads()}
        return results
