"""Layers that add embeddings of the last tokens, as Qwen3.8 has them.

Hugging Face keeps these tokens as if they were a state of the layer. They are known, so no page holds them: each step
tells its model the tokens before those that it computes.
"""

from typing import Any

from torch import nn

from octavo.engine.models.layers import EarlierTokens

_STATE_KEY = ("conv", 2)
"""By which such a layer asks for them."""


def find_ngrams(model: nn.Module) -> dict[int, EarlierTokens]:
    """By layer that embeds n-grams: the tokens that it looks at."""
    found: list[Any] = [module for module in model.modules() if hasattr(module, "ngram_embedding")]
    return {
        module.layer_idx: EarlierTokens(key=_STATE_KEY, number=module.context_len, filler=module.eos_token_id)
        for module in found
    }
