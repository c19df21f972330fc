"""Which settings of an engine and of its offloading go together."""

from octavo.engine.config import EngineConfig
from octavo.errors import InputError
from octavo.offload import OffloadConfig


def check_together(engine: EngineConfig, offload: OffloadConfig | None) -> None:
    """Raises InputError for settings of an engine and its offloading that contradict each other."""
    if offload is not None and not engine.enable_prefix_caching:
        raise InputError(
            "without prefix caching nothing is stored below the device: leave out the tiers (--memory, --disk) or "
            "--no-prefix-caching"
        )
