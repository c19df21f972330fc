"""Which transformers the families were compared with."""

import logging
from functools import cache

import transformers

TESTED = "5.23.0"
"""The version that `octavo[engine]` asks for, and with which `make families` compared all that is served."""
_logger = logging.getLogger(__name__)


@cache
def check_transformers(version: str = transformers.__version__) -> None:
    """Warns, once in a process, of another version than the tested one."""
    if version != TESTED:
        _logger.warning(
            "the models were compared with plain Hugging Face in transformers %s, and %s is installed: answers may "
            "differ, or the engine may fail; pip install 'octavo[engine]' brings the former",
            TESTED,
            version,
        )
