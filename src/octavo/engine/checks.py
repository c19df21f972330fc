"""What is wrong with a configuration is told before weights are read, which takes minutes for a large model."""

from octavo.engine.compatibility import check_together
from octavo.engine.config import EngineConfig
from octavo.engine.models import read_about
from octavo.errors import InputError
from octavo.offload import OffloadConfig
from octavo.recording import check_recording


def check_before_loading(engine: EngineConfig, offload: OffloadConfig | None) -> None:
    """OctavoError for all that can be known without weights and a pool: what contradicts, a disk that cannot be used, a
    recording that is there, a device that is not, a model that is not served, a context that it was not made for."""
    check_together(engine, offload)
    for spec in () if offload is None else offload.tiers:
        spec.check()
    if engine.record is not None:
        check_recording(engine.record)
    check_context(engine, read_about(engine.model, engine.device).max_model_len)


def check_context(engine: EngineConfig, longest: int) -> None:
    """InputError if a longer context is asked for than the model was made for."""
    if engine.max_model_len is not None and engine.max_model_len > longest:
        raise InputError(
            f"max_model_len = {engine.max_model_len:,} is more than the {longest:,} positions that the model was made "
            "for (max_position_embeddings): give that or less"
        )
