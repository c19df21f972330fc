"""The classes that vLLM calls. Whatever in Octavo imports vLLM is here.

One adapter serves several versions of vLLM. Where these differ, it looks at what vLLM's classes have.

Inside, where an arrow leads to what a module calls:

    spec                                        makes what follows in vLLM's processes
    manager -> choosing, questions, waits       the scheduler's side: what is found and loaded, and who waits for it
    manager -> transfers                        copies under way, and what is stored
    request                                     what is known of one request
    worker, chunk_slots                         a rank's side: copies
    describe, known_pages                       what a rank says of its caches before the first step
    connector                                   vLLM's connector, which computes what could not be loaded
    hints, weights, recording, metrics          what else vLLM tells and is told
"""

from octavo.vllm_plugin.adapter.connector import OctavoConnector
from octavo.vllm_plugin.adapter.manager import OctavoManager
from octavo.vllm_plugin.adapter.spec import OctavoOffloadingSpec
from octavo.vllm_plugin.adapter.worker import OctavoWorker

__all__ = ["OctavoConnector", "OctavoManager", "OctavoOffloadingSpec", "missing_methods"]


def missing_methods() -> list[str]:
    """Methods that this vLLM calls, and that the adapter does not have."""
    classes = (OctavoConnector, OctavoManager, OctavoOffloadingSpec, OctavoWorker)
    return sorted(f"{cls.__name__}.{name}" for cls in classes for name in getattr(cls, "__abstractmethods__", ()))
