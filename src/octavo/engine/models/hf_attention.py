"""The attention function that Hugging Face models call, and the additions for latent attention."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, PreTrainedModel

from octavo.engine.attention import LatentWeights, LayerContext, ScoreRule, Selection, attend_latents, attend_pages

_NAME = "octavo"
_MASK_OF_CHOSEN = "build_attention_mask_from_topk"
"""Where a model makes a mask of what an indexer has chosen. The attention function takes the choice itself."""


def use_paged_attention(model: PreTrainedModel) -> None:
    """Makes the model attend over pages. From then on it computes with a `StepCache` only."""
    # Nothing is registered with AttentionMaskInterface: a model then makes no masks of its own.
    AttentionInterface.register(_NAME, _attention)
    model.set_attn_implementation(_NAME)
    for module in model.modules():
        if hasattr(module, "expand_kv"):
            _keep_latents(module)


def _attention(
    module: nn.Module,
    query: torch.Tensor,
    key: LayerContext,
    value: LayerContext,  # noqa: ARG001 - the same context again
    attention_mask: torch.Tensor | Selection | None = None,
    *,
    scaling: float,
    s_aux: torch.Tensor | None = None,
    softcap: float | None = None,
    indices: Selection | None = None,
    **_kwargs: object,
) -> tuple[torch.Tensor, None]:
    rule = ScoreRule(scale=scaling, softcap=softcap, sinks=s_aux)
    weights = getattr(module, "octavo_latent_weights", None)
    context = replace(key, selection=attention_mask if isinstance(attention_mask, Selection) else indices)
    if weights is not None:
        return attend_latents(query, context, weights, rule), None
    return attend_pages(query, context, rule), None


def _keep_latents(module: Any) -> None:
    """Hands latents to the attention function, which decides itself whether to expand them."""
    by_head = module.kv_b_proj.weight.detach().unflatten(0, (module.num_heads, -1))
    keys, values = by_head.split((module.qk_nope_head_dim, module.v_head_dim), 1)
    module.octavo_latent_weights = LatentWeights(keys=keys, values=values, expand=module.expand_kv)
    module.expand_kv = lambda latents, rotated: (latents, rotated)
    if hasattr(module, _MASK_OF_CHOSEN):
        setattr(module, _MASK_OF_CHOSEN, lambda topk_indices, **_: topk_indices)
