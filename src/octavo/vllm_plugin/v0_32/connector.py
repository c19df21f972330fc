"""vLLM's `OffloadingConnector`, but a load that failed is told to the scheduler instead of ending the engine.

"kv_connector": "OctavoConnector", "kv_connector_module_path": "octavo.vllm_plugin",
"kv_load_failure_policy": "recompute"
"""

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorTransferResults
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector

from octavo.errors import InputError
from octavo.vllm_plugin.v0_32.worker import OctavoWorker


class OctavoConnector(OffloadingConnector):
    """Reports requests whose loads failed: vLLM computes them, or fails them, as `kv_load_failure_policy` says."""

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        connector = self.connector_worker
        assert connector is not None, "vLLM asks workers"
        if not isinstance(connector.worker, OctavoWorker):
            raise InputError('OctavoConnector needs "spec_name": "OctavoOffloadingSpec" in kv_connector_extra_config')
        request_of = dict(connector._load_jobs)  # noqa: SLF001 - nobody else knows whose load a job is
        results = super().get_transfer_results(finished_req_ids)
        results.failed_recving |= {request_of[job_id] for job_id in connector.worker.take_failed_loads()}
        return results
