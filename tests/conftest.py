"""How Hypothesis looks for counterexamples: the same ones every time, or (`HYPOTHESIS_PROFILE=dev`) ever new ones."""

import importlib.util
import os

from hypothesis import Phase, settings

collect_ignore = [] if importlib.util.find_spec("vllm") else ["vllm"]
"""The suites against the real vLLM are there only where vLLM is (`make test-vllm`)."""

_PHASES = set(Phase) - {Phase.explain}  # to explain a failed run of a state machine takes longer than to find it
settings.register_profile("ci", derandomize=True, max_examples=60, deadline=None, print_blob=True, phases=_PHASES)
settings.register_profile("dev", max_examples=400, deadline=None, phases=_PHASES)
settings.register_profile("any", settings.get_profile("ci"), phases=_PHASES - {Phase.shrink})
"""Any counterexample will do, it need not be the smallest."""
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
