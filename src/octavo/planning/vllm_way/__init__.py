"""The plan that vLLM 0.32 makes for the same layers on a CUDA device: Octavo's sheets are compared with it.

`block_size.py` does the platform's part before layers are asked for their specs, `grouping.py` makes the groups,
`plan.py` divides the memory. The rules are checked against the real vLLM in `tests/vllm/test_plan_parity.py`.
"""

from octavo.planning.vllm_way.plan import VllmGroup, VllmPlan, plan_like_vllm

__all__ = ["VllmGroup", "VllmPlan", "plan_like_vllm"]
