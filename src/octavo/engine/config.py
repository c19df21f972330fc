"""`EngineConfig`: everything that decides what an engine is. Made once, at the edge."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from octavo.errors import InputError
from octavo.events import PublisherConfig
from octavo.hashing import DEFAULT_ALGORITHM
from octavo.settings import Count, Settings

DEFAULT_DEVICE_MEMORY_BYTES = 2 << 30


class EngineConfig(Settings, frozen=True, kw_only=True):
    """A model, a device, a pool, and the bounds of a step and of the queue."""

    model: Path
    """A local folder with config, weights and, for text, a tokenizer."""
    dtype: str = "float32"
    device: str = "cpu"
    device_memory_bytes: Count = DEFAULT_DEVICE_MEMORY_BYTES
    """The pool; weights and activations come on top."""
    max_model_len: Annotated[int, Meta(ge=2, description="2 or more, for a prompt and what follows it")] | None = None
    """The longest context; None takes the model's own, or what the pool holds if that is less."""
    max_step_tokens: Count = 2048
    max_num_seqs: Count = 64
    """Sequences that run at once."""
    max_waiting: Count = 1024
    """Requests that wait; more are refused."""
    attention_block_size: Count = 16
    state_block_size: Count | None = None
    """Boundaries of recurrent state; None takes a multiple of the model's own chunk."""
    checkpoint_interval_tokens: Count | None = None
    """None: as the plan reckons."""
    enable_prefix_caching: bool = True
    hash_algorithm: str = DEFAULT_ALGORITHM
    hash_seed: str | None = None
    """Engines share stored blocks and events only under equal seeds."""
    kv_events: PublisherConfig | None = None
    """None publishes nothing."""
    record: Path | None = None
    """A new file for what `octavo simulate` replays: lengths, times and hashes of requests, no text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kv_events is not None and not self.enable_prefix_caching:
            raise InputError("without prefix caching there are no events: leave out kv_events or --no-prefix-caching")
        if self.hash_seed == "":
            raise InputError("hash_seed must not be empty: leave it out (--hash-seed), or give all engines one seed")
        if self.max_num_seqs > self.max_step_tokens:
            raise InputError(
                f"max_num_seqs = {self.max_num_seqs} is more than max_step_tokens = {self.max_step_tokens}: "
                "a step must have a token for each sequence"
            )
