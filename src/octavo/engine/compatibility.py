"""Which configurations of an engine and of what lies below it go together."""

from octavo.engine.config import EngineConfig
from octavo.errors import InputError
from octavo.offload import OffloadConfig


def check_together(engine: EngineConfig, offload: OffloadConfig | None) -> None:
    """InputError for an engine and what lies below it that do not go together."""
    if offload is not None and not engine.enable_prefix_caching:
        raise InputError(
            "without prefix caching nothing is stored below the device: leave out the tiers (--memory, --disk) or "
            "--no-prefix-caching"
        )
