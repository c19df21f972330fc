"""Finds out what each layer of a model keeps, by running two tokens and looking at the cache."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin, LinearAttentionCacheLayerMixin

from octavo.engine.models.indexers import PoolShape, choosing_layers, pool_shapes
from octavo.engine.models.layers import AttentionShape, EarlierTokens, IndexerShape, ModelLayer, StateTensor
from octavo.engine.models.ngrams import find_ngrams
from octavo.engine.models.record_shape import RecordShape
from octavo.engine.models.step_cache import cache_argument
from octavo.errors import UnsupportedModelError

_PROBE_TOKENS = (1, 2)


class _Cache(DynamicCache):
    """Hugging Face's own, which notes the layers whose keys are their values too."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shared: set[int] = set()

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Any:
        if key_states is value_states:
            self.shared.add(layer_idx)
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)


def probe_layers(model: PreTrainedModel) -> tuple[ModelLayer, ...]:
    """The layers of a model, in order. Raises UnsupportedModelError if no spec describes what one keeps.

    The model must still have Hugging Face's own attention and cache.
    """
    config: Any = model.config.get_text_config(decoder=True)
    cache = _Cache(config=config)
    tokens = torch.tensor([_PROBE_TOKENS], device=model.device)
    try:
        with torch.inference_mode():
            model(input_ids=tokens, use_cache=True, **{cache_argument(model): cache})
    except Exception as error:  # a model's own code may raise anything
        raise UnsupportedModelError(f"{config.model_type} cannot compute {len(tokens[0])} tokens: {error}") from error
    kinds = getattr(config, "layer_types", None) or ()
    latent_layers = {m.layer_idx for m in model.modules() if hasattr(m, "expand_kv")}
    pools, ngrams = pool_shapes(model), find_ngrams(model)
    layers = tuple(
        ModelLayer(
            index=index,
            attention=_attention_shape(
                layer, index, kinds, is_latent=index in latent_layers, is_shared=index in cache.shared
            ),
            states=_state_tensors(layer, index, ngrams.get(index)),
            indexer=_indexer_shape(layer, pools.get(index)),
            earlier=ngrams.get(index),
            records=_record_shapes(layer),
        )
        for index, layer in enumerate(cache.layers)
    )
    if not any(layer.attention or layer.states for layer in layers):
        raise UnsupportedModelError(f"{config.model_type}: no layer stored anything in Hugging Face's cache")
    choosing = choosing_layers(model)
    for layer in layers:
        is_latent = layer.attention is not None and layer.attention.reach == "latent"
        if layer.indexer is not None and not is_latent and layer.index not in choosing:
            raise UnsupportedModelError(
                f"layer {layer.index} has an indexer without latents, which no served family has"
            )
    return layers


def _attention_shape(
    layer: Any, index: int, kinds: Sequence[str], *, is_latent: bool, is_shared: bool
) -> AttentionShape | None:
    if not isinstance(layer, CacheLayerMixin) or not layer.is_initialized:
        return None
    keys, values = layer.keys, layer.values
    assert keys is not None
    assert values is not None
    if keys.shape[1] != values.shape[1]:
        raise UnsupportedModelError(f"layer {index} has {keys.shape[1]} heads of keys, but {values.shape[1]} of values")
    reach_tokens = getattr(layer, "sliding_window", None)
    reach: Literal["full", "window", "chunk", "latent"] = "full"
    if is_latent:
        if reach_tokens is not None:
            raise UnsupportedModelError(f"layer {index} has a window of latents, which no served family has")
        reach = "latent"
    elif reach_tokens is not None:
        reach = "chunk" if kinds and kinds[index] == "chunked_attention" else "window"
    return AttentionShape(
        reach=reach,
        num_kv_heads=keys.shape[1],
        key_size=keys.shape[3],
        value_size=0 if is_shared and reach == "window" and keys.shape[1] == 1 else values.shape[3],
        dtype=keys.dtype,
        reach_tokens=int(reach_tokens or 0),
    )


def _indexer_shape(layer: Any, pool: PoolShape | None) -> IndexerShape | None:
    keys = getattr(layer, "indexer_keys", None)
    if keys is None:
        return None
    if pool is None:
        return IndexerShape(key_size=keys.shape[-1], dtype=keys.dtype)
    return IndexerShape(
        key_size=pool.key_size, dtype=keys.dtype, tokens_per_key=pool.num_tokens, open_size=pool.open_size
    )


def _record_shapes(layer: Any) -> dict[str, RecordShape]:
    """By name: what Hugging Face keeps of records and of tokens that wait for theirs."""
    records: dict[str, torch.Tensor] = getattr(layer, "compressed_kv", {})
    return {
        name: RecordShape(
            size=of_one.shape[-1],
            dtype=of_one.dtype,
            tokens_per_record=layer.compress_rate,
            open_size=layer.buffer_kv[name].shape[-1] + layer.buffer_gate[name].shape[-1],
            open_dtype=layer.buffer_kv[name].dtype,
            overlaps=name in getattr(layer, "overlap_kv", {}),
        )
        for name, of_one in records.items()
    }


def _state_tensors(layer: Any, index: int, earlier: EarlierTokens | None) -> tuple[StateTensor, ...]:
    if not isinstance(layer, LinearAttentionCacheLayerMixin):
        return ()
    stored: tuple[tuple[Literal["conv", "recurrent"], Any], ...] = (
        ("conv", layer.conv_states),
        ("recurrent", layer.recurrent_states),
    )
    tensors = tuple(
        StateTensor(name=name, index=state_index, shape=tuple(tensor.shape[1:]), dtype=tensor.dtype)
        for name, of_name in stored
        for state_index, tensor in of_name.items()
        if tensor is not None and not (earlier is not None and (name, state_index) == earlier.key)
    )
    for tensor in tensors:
        if not tensor.dtype.is_floating_point:
            raise UnsupportedModelError(f"layer {index} keeps whole numbers in its state, which no served family does")
    return tensors
