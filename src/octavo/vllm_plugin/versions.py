"""Which vLLM the adapter can speak to: it asks what vLLM's classes have, and the version for the rest."""

import logging
import re
from functools import cache
from importlib import import_module
from types import ModuleType

from octavo.errors import InputError

logger = logging.getLogger(__name__)

TESTED = ((0, 31), (0, 32), (0, 33))
"""The versions with which the suites have passed."""


@cache
def load_adapter() -> ModuleType:
    """Imports the adapter. InputError says why this vLLM cannot be used; a vLLM that is newer than the tested ones is
    warned of once."""
    try:
        import vllm  # it is no dependency: a caller either runs vLLM, or is told to install it
    except ImportError as error:
        raise InputError(f"vLLM cannot be imported ({error}): pip install 'octavo[vllm]'") from error
    is_tested = check_version(vllm.__version__)
    try:
        adapter = import_module("octavo.vllm_plugin.adapter")
    except (ImportError, AttributeError) as error:
        raise _cannot_use(vllm.__version__, str(error)) from error
    if missing := adapter.missing_methods():
        raise _cannot_use(vllm.__version__, f"it calls {', '.join(missing)}")
    if not is_tested:
        logger.warning(
            "Octavo was tested with vLLM %s, and %s is installed: compare its answers with `octavo vllm-check`",
            _tested(),
            vllm.__version__,
        )
    return adapter


def check_version(version: str) -> bool:
    """Whether this version of vLLM was tested. InputError if it is older."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    release = (int(numbers[1]), int(numbers[2])) if numbers else None  # a build from sources may have no number
    if release is not None and release < TESTED[0]:
        raise _cannot_use(version, "it is too old")
    return release in TESTED


def _cannot_use(version: str, cause: str) -> InputError:
    return InputError(
        f"this Octavo knows vLLM {_tested()}, and {version} is installed, which it cannot use ({cause}): "
        f"install vLLM {_tested()}, or an Octavo that knows {version}"
    )


def _tested() -> str:
    first, last = (".".join(map(str, release)) for release in (TESTED[0], TESTED[-1]))
    return f"{first} to {last}"
