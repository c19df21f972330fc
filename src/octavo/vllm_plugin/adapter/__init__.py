"""The classes that vLLM calls. Whatever in Octavo imports vLLM is here."""

from octavo.vllm_plugin.adapter.connector import OctavoConnector
from octavo.vllm_plugin.adapter.manager import OctavoManager
from octavo.vllm_plugin.adapter.spec import OctavoOffloadingSpec

__all__ = ["OctavoConnector", "OctavoManager", "OctavoOffloadingSpec"]
