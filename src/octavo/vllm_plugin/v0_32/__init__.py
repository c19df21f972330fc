"""The adapter for vLLM 0.32."""

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.v1.kv_offload.factory import OffloadingSpecFactory

from octavo.vllm_plugin.v0_32.connector import OctavoConnector
from octavo.vllm_plugin.v0_32.manager import OctavoManager
from octavo.vllm_plugin.v0_32.spec import OctavoOffloadingSpec

__all__ = ["OctavoConnector", "OctavoManager", "OctavoOffloadingSpec", "register"]

_PACKAGE = "octavo.vllm_plugin"


def register() -> None:
    """Makes the names known to vLLM; doing it again changes nothing."""
    if OctavoOffloadingSpec.__name__ not in OffloadingSpecFactory._registry:  # noqa: SLF001 - it raises on repetition
        OffloadingSpecFactory.register_spec(OctavoOffloadingSpec.__name__, _PACKAGE, OctavoOffloadingSpec.__name__)
    if OctavoConnector.__name__ not in KVConnectorFactory._registry:  # noqa: SLF001 - so does this
        KVConnectorFactory.register_connector(OctavoConnector.__name__, _PACKAGE, OctavoConnector.__name__)
