"""The speeds at which a simulated engine computes and moves bytes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """A model of time, linear in tokens and bytes. `octavo bench serve` measures the figures of one's own machine."""

    prefill_tokens_per_s: float = 10_000.0
    context_s_per_token_pair: float = 0.0
    """Seconds for each pair of a prompt's token and an earlier one: long prompts cost more per token."""
    step_s: float = 0.010
    """Seconds that each step takes beside its tokens."""
    decode_s_per_request: float = 0.0001
    """Seconds that each decoding request adds to a step."""
    memory_bytes_per_s: float = 20e9
    """From host memory to the device, and back."""
    disk_bytes_per_s: float = 3e9
    disk_latency_s: float = 0.0002

    def prefill_s(self, start: int, end: int) -> float:
        """Seconds to compute tokens `[start, end)` of a prompt."""
        pairs = (end - start) * (start + end) / 2
        return (end - start) / self.prefill_tokens_per_s + pairs * self.context_s_per_token_pair
