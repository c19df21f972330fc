"""The plan that vLLM 0.32 makes for the same layers on a CUDA device: what Octavo's sheets are compared with.

`block_size.py` is what the platform does before it asks the layers for their specs, `grouping.py` makes groups of
them, `plan.py` divides the memory. The rules are checked against the real vLLM in `tests/vllm/test_plan_parity.py`.
"""

from octavo.planning.vllm_way.plan import VllmGroup, VllmPlan, plan_like_vllm

__all__ = ["VllmGroup", "VllmPlan", "plan_like_vllm"]
