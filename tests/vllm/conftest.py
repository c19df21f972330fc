"""The suites against the real vLLM share modules that lie beside them, and one environment: a test that runs alone has
the settings that it has among all others."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import vllm_environment  # noqa: F401 - for its settings

from rigs.real_stores import redis, server

__all__ = ["redis", "server"]
