"""What a process imports before tests fork from it. No collection goes through its objects again: they stay."""

import gc

import plugin_engine  # noqa: F401 - with all of vLLM

gc.freeze()
