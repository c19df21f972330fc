"""`Question`: one configuration that is to be tried on a trace."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One configuration that is to be tried on a trace."""

    model: Path
    block_size: int
    device: str
    memory: str
    disk: str
    policy: str
    engines: int
    placement: str
    step_tokens: int
    prefill_rate: float
    step_ms: float
    memory_rate: str
    disk_rate: str

    def name(self) -> str:
        return f"device {self.device}, memory {self.memory}, disk {self.disk}, {self.policy}"
