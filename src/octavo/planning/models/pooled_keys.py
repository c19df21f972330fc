"""Families that mix delta attention with sparse attention, whose indexer keeps one key for several tokens.

linear_attention     a state
indexed_attention    attn       heads, or a latent, per token
                     indexer    a key per `index_kpool` or `indexer_compress_ratio` tokens
                     open       the raw keys of those that wait for theirs, and of drafts
"""

from octavo.planning.models.attention import attention_spec, read_heads
from octavo.planning.models.delta_families import kimi_sizes, kimi_state, qwen_state
from octavo.planning.models.latent import indexer_key_bytes, indexer_words, sparse_latent_spec
from octavo.planning.models.model import Model
from octavo.planning.models.model_layers import Layers
from octavo.specs import CacheDType, CircularBufferSpec, KVCacheSpec, MambaSpec, MLAAttentionSpec

_RENAMED = {"full_attention": "indexed_attention"}
"""Published configs call such layers so."""
_POSITION_VALUES = 12
"""Three positions of 8 bytes, where images have positions of their own."""


def read_glm5_next(model: Model) -> Layers:
    """GLM-5.3 Flash: Kimi delta attention and latents. A pool's open keys have gates beside them."""
    kpool = model.view.count("index_kpool")
    size = model.view.count("index_head_dim")
    indexer = {
        "indexer": MLAAttentionSpec(
            block_size=model.target.block_size,
            head_size=indexer_key_bytes(model),
            dtype=CacheDType.UINT8,
            tokens_per_state=kpool,
        ),
        "indexer.open": CircularBufferSpec(
            block_size=model.target.block_size,
            num_kv_heads=2,
            head_size=size,
            dtype=CacheDType.BFLOAT16,
            tokens_per_state=kpool,
        ),
    }
    attention, state = sparse_latent_spec(model), kimi_state(model, kimi_sizes(model))
    layers: Layers = {}
    for index, (word, has_indexer) in enumerate(zip(_words(model, 4), indexer_words(model), strict=True)):
        own: dict[str, KVCacheSpec] = {"linear_attn": state}
        if word == "indexed_attention":
            own = {**(indexer if has_indexer == "full" else {}), "attn": attention}
        layers |= {f"layers.{index}.{name}": spec for name, spec in own.items()}
    return layers


def read_qwen4_exp(model: Model) -> Layers:
    """Qwen3.8-Flash-Next: gated delta nets and heads. Some layers add embeddings of the last tokens, convolved."""
    view = model.view
    state = qwen_state(model)
    attention = {**_indexer_of_heads(model), "attn": attention_spec(model, read_heads(model), "full_attention")}
    embedded = set(view.find_counts("ple_layer_ids") or ())
    layers: Layers = {}
    for index, word in enumerate(_words(model, view.count("full_attention_interval"))):
        own = attention if word == "indexed_attention" else {"linear_attn": state}
        layers |= {f"layers.{index}.{name}": spec for name, spec in own.items()}
        if index + 1 in embedded:
            layers[f"layers.{index}.ple.conv"] = _embedded_state(model)
    return layers


def _embedded_state(model: Model) -> MambaSpec:
    """The last inputs of a dilated convolution over all residual streams; each rank computes it as a whole."""
    view = model.view
    reach = (view.count("ple_conv_kernel_size", minimum=2) - 1) * view.count("ngram_size")
    shape = (reach, view.count("hc_count") * view.count("hidden_size"))
    return MambaSpec(
        block_size=model.target.block_size, shapes=(shape,), dtypes=(model.target.model_dtype,), is_replicated=True
    )


def _words(model: Model, interval: int) -> tuple[str, ...]:
    words = model.layer_words(
        "layer_types",
        default=lambda index: "linear_attention" if (index + 1) % interval else "indexed_attention",
        known={"linear_attention", "indexed_attention", *_RENAMED},
    )
    return tuple(_RENAMED.get(word, word) for word in words)


def _indexer_of_heads(model: Model) -> dict[str, KVCacheSpec]:
    """Empty where the heads attend to all tokens."""
    view = model.view
    size = view.find_count("indexer_head_dim")
    if size is None:
        return {}
    ratio = view.count("indexer_compress_ratio")
    rope = view.find_part("rope_parameters") or view.find_part("rope_scaling")
    takes_images = model.architecture.endswith("ForConditionalGeneration")
    has_positions = takes_images and rope is not None and rope.has("mrope_section")
    return {
        "indexer.open": CircularBufferSpec(
            block_size=model.target.block_size,
            num_kv_heads=1,
            head_size=size + (_POSITION_VALUES if has_positions else 0),
            dtype=CacheDType.BFLOAT16,
            tokens_per_state=ratio,
        ),
        "indexer": MLAAttentionSpec(
            block_size=model.target.block_size, head_size=size, dtype=CacheDType.BFLOAT16, tokens_per_state=ratio
        ),
    }
