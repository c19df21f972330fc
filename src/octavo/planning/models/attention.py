"""The attention of one layer: heads per rank, and how far the layer looks."""

from dataclasses import dataclass
from typing import Any

from octavo.planning.models.config_view import ConfigView
from octavo.planning.models.model import Model
from octavo.planning.models.model_layers import Layers
from octavo.specs import AttentionSpec, ChunkedLocalAttentionSpec, FullAttentionSpec, SlidingWindowSpec

ATTENTION_WORDS = frozenset({"full_attention", "sliding_attention", "chunked_attention"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The keys and values that one rank caches for one token."""

    num_kv_heads: int
    head_size: int
    head_size_v: int | None = None
    """None where values are as long as keys."""


def read_heads(model: Model, view: ConfigView | None = None) -> Heads:
    """The heads as `view` gives them, the model's own view by default."""
    view = view or model.view
    num_heads = view.count("num_attention_heads")
    num_kv_heads = view.find_count("num_key_value_heads") or num_heads
    head_size = view.find_count("head_dim") or view.count("hidden_size") // num_heads
    if num_heads % num_kv_heads:
        raise view.problem("num_attention_heads", f"= {num_heads} is not a multiple of {num_kv_heads} key-value heads")
    if head_size < 1:
        raise view.problem("hidden_size", f"is smaller than num_attention_heads = {num_heads}")
    return Heads(num_kv_heads=kv_heads_per_rank(model, num_heads, num_kv_heads), head_size=head_size)


def kv_heads_per_rank(model: Model, num_heads: int, num_kv_heads: int) -> int:
    """Key-value heads are split over the ranks, or replicated where there are fewer heads than ranks."""
    model.per_rank(num_heads, "num_attention_heads")
    ranks = model.target.tensor_parallel_size
    if max(num_kv_heads, ranks) % min(num_kv_heads, ranks):
        raise model.unsplittable("num_key_value_heads", num_kv_heads, otherwise="replicated evenly")
    return max(1, num_kv_heads // ranks)


def attention_spec(model: Model, heads: Heads, word: str, view: ConfigView | None = None) -> AttentionSpec:
    """The spec of a layer whose type is one of `ATTENTION_WORDS`; `view` has its window, the model's own by default."""
    view = view or model.view
    common: dict[str, Any] = {
        "block_size": model.target.block_size,
        "dtype": model.target.kv_dtype,
        "num_kv_heads": heads.num_kv_heads,
        "head_size": heads.head_size,
        "head_size_v": heads.head_size_v,
    }
    if word == "sliding_attention":
        return SlidingWindowSpec(**common, sliding_window=view.count("sliding_window"))
    if word == "chunked_attention":
        return ChunkedLocalAttentionSpec(**common, attention_chunk_size=view.count("attention_chunk_size"))
    return FullAttentionSpec(**common)


def attention_layers(model: Model, words: tuple[str, ...]) -> Layers:
    """All layers of a model in which each has the same heads."""
    heads = read_heads(model)
    specs = {word: attention_spec(model, heads, word) for word in set(words)}
    return {f"layers.{index}.attn": specs[word] for index, word in enumerate(words)}
