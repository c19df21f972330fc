"""How Hypothesis looks for counterexamples: the same ones every time, or (`HYPOTHESIS_PROFILE=dev`) ever new ones."""

import importlib.util
import os

from hypothesis import settings

collect_ignore = [] if importlib.util.find_spec("vllm") else ["vllm"]
"""The suites against the real vLLM are there only where vLLM is (`make test-vllm`)."""

settings.register_profile("ci", derandomize=True, max_examples=60, deadline=None, print_blob=True)
settings.register_profile("dev", max_examples=400, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
