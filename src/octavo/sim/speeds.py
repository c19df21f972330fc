"""How fast a simulated engine computes and moves bytes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """A model of time: linear in tokens and bytes. `octavo bench serve` gives the figures of one's own machine."""

    prefill_tokens_per_s: float = 10_000.0
    context_s_per_token_pair: float = 0.0
    """Seconds for each pair of a prompt's token and a token before it: what makes long prompts dearer."""
    step_s: float = 0.010
    """What any step takes besides."""
    decode_s_per_request: float = 0.0001
    """What each request that decodes adds to a step."""
    memory_bytes_per_s: float = 20e9
    """Host memory to the device, and back."""
    disk_bytes_per_s: float = 3e9
    disk_latency_s: float = 0.0002

    def prefill_s(self, start: int, end: int) -> float:
        """Tokens `[start, end)` of a prompt."""
        pairs = (end - start) * (start + end) / 2
        return (end - start) / self.prefill_tokens_per_s + pairs * self.context_s_per_token_pair
