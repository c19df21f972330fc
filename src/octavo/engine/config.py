"""`EngineConfig`: everything that decides what an engine is. Made once, at the edge."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from octavo.errors import InputError
from octavo.events import PublisherConfig
from octavo.recording import RECORDING_BYTES
from octavo.settings import Count, Settings, Size

DEFAULT_DEVICE_MEMORY_BYTES = 2 << 30
DEFAULT_ATTENTION_BLOCK_SIZE = 16
_Share = Annotated[str, Meta(pattern=r"^(?!0(\.0+)?%)(100|[1-9]?[0-9](\.[0-9]+)?)%$")]
_PoolSize = Annotated[Count | _Share, Meta(description="a size such as 8GiB, or a share of what is free such as 80%")]


class EngineConfig(Settings, frozen=True, kw_only=True):
    """A model, a device, a pool, and the bounds of a step and of the queue."""

    model: Path
    """A folder with config, weights and, for text, a tokenizer; or a name from the local cache of Hugging Face's
    hub."""
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "float32"
    """The number format of weights and cache; auto takes the one that the model's config names."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the model runs."""
    device_memory_bytes: _PoolSize = field(name="device_memory", default=DEFAULT_DEVICE_MEMORY_BYTES)
    """The memory for the cache on the device, beside the weights: a size, or a share of what is free once the weights
    are loaded, such as 80%."""
    max_model_len: Annotated[int, Meta(ge=2, description="2 or more, for a prompt and what follows it")] | None = None
    """The longest context in tokens; by default the model's own, or what the device memory holds if that is less."""
    max_step_tokens: Count = 2048
    """The most tokens that one step computes."""
    max_num_seqs: Count = 64
    """The most sequences that run at once."""
    max_waiting: Count = 1024
    """The most requests that wait; more are refused with 429."""
    attention_block_size: Count = DEFAULT_ATTENTION_BLOCK_SIZE
    """Tokens of a block of attention."""
    state_block_size: Count | None = None
    """Tokens between two boundaries of recurrent state; by default a multiple of the model's own chunk."""
    checkpoint_interval_tokens: Count | None = None
    """Tokens between two kept recurrent states, at most; by default as states weigh and room is left."""
    enable_prefix_caching: bool = field(name="prefix_caching", default=True)
    """Whether what was computed for one prompt is used for the next."""
    hash_algorithm: Literal["sha256_int32", "sha256_cbor", "xxh3_128"] = "sha256_int32"
    """The algorithm that names blocks."""
    hash_seed: str | None = None
    """Engines share stored blocks and events only under equal seeds."""
    kv_events: PublisherConfig | None = None
    """Where KV events are published; by default nowhere."""
    record: Path | None = None
    """A file for what `octavo simulate` replays: lengths, times and hashes of requests, no text. A file that is
    there is kept; then a new one is written beside it, such as NAME-2."""
    record_bytes: Size = field(name="record_size", default=RECORDING_BYTES)
    """The most that such a file takes; then the recording ends, and requests go on."""

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

    def pool_bytes(self, free_bytes: int) -> int:
        """The size of the pool on a device that has so much free."""
        if isinstance(self.device_memory_bytes, int):
            return self.device_memory_bytes
        return max(1, int(free_bytes * float(self.device_memory_bytes.removesuffix("%")) / 100))
