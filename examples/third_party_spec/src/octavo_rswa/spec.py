"""What a layer with reference sliding-window attention keeps.

tokens    0 ................ p ......... n-w+1 ....... n
          [    the prompt    )           [  the window )
          [ never out of sight )         [ moves on    )
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from octavo.specs import (
    AttentionSpec,
    KVCacheSpec,
    RequestLimits,
    ResumePoint,
    blocks_holding,
    ceil_div,
    require_positive,
    union_of_ranges,
)


@dataclass(frozen=True, kw_only=True)
class ReferenceWindowSpec(AttentionSpec):
    """Attention to the whole prompt and to the last `window` generated tokens, the current one included."""

    kind: ClassVar[str] = "reference_window"

    window: int

    def __post_init__(self) -> None:
        require_positive(self, "window")
        super().__post_init__()

    def needed_blocks(self, point: ResumePoint) -> tuple[range, ...]:
        n, prompt_end = point.num_tokens, point.num_prompt_tokens
        prompt = blocks_holding(0, min(n, prompt_end), self.block_size)
        window = blocks_holding(max(prompt_end, n - self.window + 1), n, self.block_size)
        return union_of_ranges((*prompt, *window))

    def max_blocks_per_request(self, limits: RequestLimits) -> int:
        """All: a prompt may be as long as the request."""
        return ceil_div(limits.max_model_len, self.block_size)

    def is_uniform_with_collection(self, specs: Mapping[str, KVCacheSpec]) -> bool:
        return all(isinstance(s, ReferenceWindowSpec) and s.window == self.window for s in specs.values())
