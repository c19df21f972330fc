"""The kinds that look at an encoder's input: cross-attention keeps it, encoder-only attention keeps nothing."""

from dataclasses import dataclass
from typing import ClassVar

from octavo.specs.attention import AttentionSpec
from octavo.specs.base import RequestLimits, ResumePoint, blocks_holding, ceil_div


@dataclass(frozen=True, kw_only=True)
class CrossAttentionSpec(AttentionSpec):
    """Attention from the decoder to the encoder's output: all of it is needed, wherever the decoder stands."""

    kind: ClassVar[str] = "cross_attention"
    indexes_decoder_tokens: ClassVar[bool] = False

    def needed_blocks(self, point: ResumePoint) -> tuple[range, ...]:
        return blocks_holding(0, point.num_encoder_tokens, self.block_size)

    def max_blocks_per_request(self, limits: RequestLimits) -> int:
        return ceil_div(limits.max_encoder_tokens, self.block_size)


@dataclass(frozen=True, kw_only=True)
class EncoderOnlyAttentionSpec(AttentionSpec):
    """Attention within an encoder, computed in one pass: nothing is kept between steps."""

    kind: ClassVar[str] = "encoder_only_attention"
    indexes_decoder_tokens: ClassVar[bool] = False

    def needed_blocks(self, point: ResumePoint) -> tuple[range, ...]:
        return ()

    def max_blocks_per_request(self, limits: RequestLimits) -> int:
        return 0
