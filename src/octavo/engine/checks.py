"""Checks of a configuration before weights are read, which takes minutes for a large model."""

from octavo.engine.compatibility import check_together
from octavo.engine.config import DEFAULT_ATTENTION_BLOCK_SIZE, EngineConfig
from octavo.engine.models import read_about
from octavo.errors import InputError
from octavo.offload import OffloadConfig
from octavo.recording import check_recording


def check_before_loading(engine: EngineConfig, offload: OffloadConfig | None) -> None:
    """Raises OctavoError for what is known to be wrong without weights and a pool: settings that contradict each
    other, an unusable disk, a recording that cannot be made, a missing device, a model that is not served, too long a
    context, blocks longer than any."""
    check_together(engine, offload)
    for spec in () if offload is None else offload.tiers:
        spec.check()
    if engine.record is not None:
        check_recording(engine.record)
    check_context(engine, read_about(engine.model, engine.device).max_model_len)


def check_context(engine: EngineConfig, longest: int) -> None:
    """Raises InputError for a longer context than the model was made for, and for blocks that no context fills."""
    if engine.max_model_len is not None and engine.max_model_len > longest:
        raise InputError(
            f"max_model_len = {engine.max_model_len:,} is more than the {longest:,} positions that the model was made "
            "for (max_position_embeddings): give that or less"
        )
    _check_block_sizes(engine, engine.max_model_len or longest)


def _check_block_sizes(engine: EngineConfig, longest: int) -> None:
    """A prompt resumes behind whole blocks. The default is fine for a context of any length: nothing is lost by it."""
    sizes = {"attention_block_size": engine.attention_block_size, "state_block_size": engine.state_block_size}
    for name, size in sizes.items():
        if size is not None and size > max(longest, DEFAULT_ATTENTION_BLOCK_SIZE):
            raise InputError(
                f"{name} = {size:,} is more than the longest context of {longest:,} tokens, so no prompt could ever be "
                f"resumed: give much less, or leave it out (--{name.replace('_', '-')})"
            )
