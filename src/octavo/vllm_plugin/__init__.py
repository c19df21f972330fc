"""Octavo's offloading inside vLLM: an `OffloadingSpec` for its `OffloadingConnector`.

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config":
        {"spec_name": "OctavoOffloadingSpec", "spec_module_path": "octavo.vllm_plugin", "memory": "8GiB"}}'

It translates at the border; what is kept where, and what is given up, is decided in `octavo.offload`. vLLM's interface
changes, so each range of its versions has an adapter of its own, and is imported only when vLLM asks for it.
"""

from typing import TYPE_CHECKING, Any

from octavo.vllm_plugin.config import PluginConfig
from octavo.vllm_plugin.versions import load_adapter

if TYPE_CHECKING:
    from octavo.vllm_plugin.v0_32 import (
        OctavoConnector as OctavoConnector,
        OctavoOffloadingSpec as OctavoOffloadingSpec,
    )

__all__ = ["OctavoConnector", "OctavoOffloadingSpec", "PluginConfig", "load_adapter", "register"]


def register() -> None:
    """For the entry point `vllm.general_plugins`, which vLLM calls in each of its processes, in some more than once:
    makes the names known, so that a configuration needs no module path."""
    load_adapter().register()


def __getattr__(name: str) -> Any:
    """The classes that vLLM asks for by name."""
    if name in ("OctavoConnector", "OctavoOffloadingSpec"):
        return getattr(load_adapter(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
