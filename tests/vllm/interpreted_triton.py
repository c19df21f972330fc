"""Triton's interpreter in the place of its backend for CPUs, which is no package. To be imported before vLLM is."""

import os
from types import SimpleNamespace

os.environ["TRITON_INTERPRET"] = "1"

import triton.backends

triton.backends.backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True))
