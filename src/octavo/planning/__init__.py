"""From a model's layers and an amount of memory to a plan: groups, pages, sheets, and their capacity.

Inside, where an arrow leads to what a module calls:

    models                            from a model's config to its layers: a reader for each family
    planner -> grouping, sheets       from layers and memory to the plan, or the refusal with its numbers
    kv_cache_config -> resumability   the plan: groups and page classes; why no request could ever be resumed
    report -> capacity                what a plan holds and wastes, as data
    gpus                              what a model's weights leave of a GPU
    vllm_way                          vLLM's plan of the same layers
"""

from octavo.planning.capacity import Capacity, Waste, blocks_of_request, measure_capacity
from octavo.planning.gpus import GPU_MEMORY_GIB, cache_bytes, usable_bytes
from octavo.planning.kv_cache_config import KVCacheConfig, KVCacheGroupSpec, PageClass
from octavo.planning.models import (
    ConfigView,
    ModelLayers,
    layers_from_config,
    read_json_object,
    read_layers_file,
    read_model,
)
from octavo.planning.planner import plan_kv_cache
from octavo.planning.report import GroupReport, PlanReport, VllmReport, report_plan
from octavo.planning.resumability import why_nothing_resumes
from octavo.planning.vllm_way import VllmPlan, plan_like_vllm

__all__ = [
    "GPU_MEMORY_GIB",
    "Capacity",
    "ConfigView",
    "GroupReport",
    "KVCacheConfig",
    "KVCacheGroupSpec",
    "ModelLayers",
    "PageClass",
    "PlanReport",
    "VllmPlan",
    "VllmReport",
    "Waste",
    "blocks_of_request",
    "cache_bytes",
    "layers_from_config",
    "measure_capacity",
    "plan_kv_cache",
    "plan_like_vllm",
    "read_json_object",
    "read_layers_file",
    "read_model",
    "report_plan",
    "usable_bytes",
    "why_nothing_resumes",
]
