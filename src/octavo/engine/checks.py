"""Checks of a configuration before weights are read, which takes minutes for a large model."""

from octavo.engine.compatibility import check_together
from octavo.engine.config import EngineConfig
from octavo.engine.models import read_about
from octavo.errors import InputError
from octavo.offload import OffloadConfig
from octavo.recording import check_recording


def check_before_loading(engine: EngineConfig, offload: OffloadConfig | None) -> None:
    """Raises OctavoError for what is known to be wrong without weights and a pool: settings that contradict each
    other, an unusable disk, a recording that cannot be made, a missing device, a model that is not served, too long a
    context."""
    check_together(engine, offload)
    for spec in () if offload is None else offload.tiers:
        spec.check()
    if engine.record is not None:
        check_recording(engine.record)
    check_context(engine, read_about(engine.model, engine.device).max_model_len)


def check_context(engine: EngineConfig, longest: int) -> None:
    """Raises InputError for a longer context than the model was made for."""
    if engine.max_model_len is not None and engine.max_model_len > longest:
        raise InputError(
            f"max_model_len = {engine.max_model_len:,} is more than the {longest:,} positions that the model was made "
            "for (max_position_embeddings): give that or less"
        )
