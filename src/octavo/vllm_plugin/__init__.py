"""Octavo's offloading inside vLLM: an `OffloadingSpec` for its `OffloadingConnector`.

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config":
        {"spec_name": "OctavoOffloadingSpec", "spec_module_path": "octavo.vllm_plugin", "memory": "8GiB"}}'

The adapter translates vLLM's calls; `octavo.offload` decides what is kept where. vLLM imports this package in all of
its processes, so the package itself imports nothing else: each name is loaded when somebody asks for it.

Inside, where an arrow leads to what a module calls:

    adapter -> promised, load_choices, loads_ahead   the classes that vLLM calls; the decisions that need no vLLM
    ranks, groups, shared_arena                      what the scheduler's process and all ranks agree on
    identity                                         whether what is stored may be found again
    config, entry_point, versions                    how vLLM comes to the adapter
"""

from typing import TYPE_CHECKING, Any

from octavo.vllm_plugin.entry_point import register

if TYPE_CHECKING:
    from octavo.vllm_plugin.adapter import OctavoConnector, OctavoOffloadingSpec
    from octavo.vllm_plugin.config import PluginConfig
    from octavo.vllm_plugin.versions import load_adapter

__all__ = ["OctavoConnector", "OctavoOffloadingSpec", "PluginConfig", "load_adapter", "register"]


def __getattr__(name: str) -> Any:
    match name:
        case "OctavoConnector" | "OctavoOffloadingSpec":
            from octavo.vllm_plugin.versions import load_adapter

            register()  # vLLM may have taken the class by its module, and later looks for its name
            return getattr(load_adapter(), name)
        case "PluginConfig":
            from octavo.vllm_plugin.config import PluginConfig

            return PluginConfig
        case "load_adapter":
            from octavo.vllm_plugin.versions import load_adapter

            return load_adapter
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has: {', '.join(__all__)}")
