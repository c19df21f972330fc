"""Which vLLM the adapter can speak to."""

import re
from importlib import import_module
from types import ModuleType

from octavo.errors import InputError

_KNOWN = "0.32"


def load_adapter() -> ModuleType:
    try:
        import vllm  # it is no dependency: whoever gets here runs it, or is told to
    except ImportError as error:
        raise InputError(f"vLLM cannot be imported ({error}): pip install 'octavo[vllm]'") from error
    check_version(vllm.__version__)
    return import_module("octavo.vllm_plugin.adapter")


def check_version(version: str) -> None:
    if not re.match(rf"{re.escape(_KNOWN)}\b", version):
        raise InputError(
            f"this Octavo knows vLLM {_KNOWN}, and {version} is installed: vLLM's offloading interface changes from "
            f"version to version. Install vLLM {_KNOWN}, or an Octavo that knows {version}"
        )
