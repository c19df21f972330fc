"""`EngineConfig`: everything that decides what an engine is. Made once, at the edge."""

from dataclasses import dataclass
from pathlib import Path

from octavo.errors import InputError
from octavo.events import PublisherConfig
from octavo.hashing import DEFAULT_ALGORITHM

DEFAULT_DEVICE_MEMORY_BYTES = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """A model, a device, a pool, and the bounds of a step and of the queue."""

    model: Path
    """A local folder with config, weights and, for text, a tokenizer."""
    dtype: str = "float32"
    device: str = "cpu"
    device_memory_bytes: int = DEFAULT_DEVICE_MEMORY_BYTES
    """The pool; weights and activations come on top."""
    max_model_len: int | None = None
    """The longest context; None takes the model's own, or what the pool holds if that is less."""
    max_step_tokens: int = 2048
    max_num_seqs: int = 64
    """Sequences that run at once."""
    max_waiting: int = 1024
    """Requests that wait; more are refused."""
    attention_block_size: int = 16
    state_block_size: int | None = None
    """Boundaries of recurrent state; None takes a multiple of the model's own chunk."""
    checkpoint_interval_tokens: int | None = None
    """None: as the plan reckons."""
    enable_prefix_caching: bool = True
    hash_algorithm: str = DEFAULT_ALGORITHM
    hash_seed: str | None = None
    """Engines share stored blocks and events only under equal seeds."""
    kv_events: PublisherConfig | None = None
    """None publishes nothing."""

    def __post_init__(self) -> None:
        for name in (
            "device_memory_bytes", "max_step_tokens", "max_num_seqs", "max_waiting", "attention_block_size"
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.max_model_len is not None and self.max_model_len < 2:
            raise InputError(
                f"max_model_len must be 2 or more, for a prompt and what follows it, not {self.max_model_len}"
            )
        for name in ("state_block_size", "checkpoint_interval_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be 1 or more, not {value}")
        if self.kv_events is not None and not self.enable_prefix_caching:
            raise InputError("without prefix caching there are no events: leave out kv_events or --no-prefix-caching")
        if self.hash_seed == "":
            raise InputError("hash_seed must not be empty: leave it out (--hash-seed), or give all engines one seed")
        if self.max_num_seqs > self.max_step_tokens:
            raise InputError(
                f"max_num_seqs = {self.max_num_seqs} is more than max_step_tokens = {self.max_step_tokens}: "
                "a step must have a token for each sequence"
            )
