"""Which adapter speaks to the vLLM that is installed."""

import re
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType

from octavo.errors import InputError

ADAPTERS: Mapping[tuple[int, int], str] = MappingProxyType({(0, 32): "octavo.vllm_plugin.v0_32"})
"""By vLLM's version, without its last number. A version is here once the tests have passed with it."""


def load_adapter() -> ModuleType:
    try:
        import vllm  # it is no dependency: whoever gets here runs it, or is told to
    except ImportError as error:
        raise InputError(f"vLLM cannot be imported ({error}): pip install 'octavo[vllm]'") from error
    return import_module(adapter_of(vllm.__version__))


def adapter_of(version: str) -> str:
    """The module for this version of vLLM."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    found = ADAPTERS.get((int(numbers[1]), int(numbers[2]))) if numbers else None
    if found is None:
        known = ", ".join(f"{major}.{minor}" for major, minor in ADAPTERS)
        raise InputError(
            f"this Octavo knows vLLM {known}, and {version} is installed: vLLM's offloading interface changes from "
            f"version to version. Install vLLM {known}, or an Octavo that knows {version}"
        )
    return found
