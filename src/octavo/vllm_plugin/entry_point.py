"""The entry point `vllm.general_plugins`, which vLLM calls in all of its processes, also if Octavo is not used."""

import logging
from contextlib import suppress
from functools import cache

logger = logging.getLogger(__name__)

_PACKAGE = "octavo.vllm_plugin"


def register() -> None:
    """Makes Octavo's names known to vLLM, so that a configuration needs no module path.

    It never raises, because vLLM would end. It registers names only: vLLM imports the classes when a configuration asks
    for them, and an error is raised then.
    """
    try:
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
        from vllm.v1.kv_offload.factory import OffloadingSpecFactory

        with suppress(ValueError):  # registered before: vLLM calls this more than once
            OffloadingSpecFactory.register_spec("OctavoOffloadingSpec", _PACKAGE, "OctavoOffloadingSpec")
        with suppress(ValueError):
            KVConnectorFactory.register_connector("OctavoConnector", _PACKAGE, "OctavoConnector")
    except Exception as error:  # noqa: BLE001 - a vLLM of any version may do anything here
        _warn_once(f"{type(error).__name__}: {error}")


@cache
def _warn_once(cause: str) -> None:
    logger.warning("Octavo cannot be used in this vLLM (%s). vLLM itself is not affected.", cause)
