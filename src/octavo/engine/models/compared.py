"""Checks that a config uses only what was compared with plain Hugging Face.

A family's `model_type` says little: a stray `sliding_window` or a bidirectional mask changes what each token reads, and
the model talks nonsense instead of failing. So each key of a config must be as in the config that was compared, which
is the tiny model's of its family, or one of these:

    sizes      any number where a number was compared, and any list of numbers
    kinds      a list of names, such as `layer_types`, with the names that were compared
    harmless   keys that no forward pass reads, and the values below
    RoPE       a type whose angles depend on a token's own position alone

Everything else is refused by name.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import transformers

from octavo.engine.admitted import COMPARISON
from octavo.engine.tiny_families import TINY_MODELS
from octavo.engine.tiny_models import tiny_text
from octavo.errors import UnsupportedModelError

_UNREAD = frozenset((
    "_name_or_path", "architectures", "attention_head_dim", "auto_map", "aux_loss_alpha", "bos_token_id",
    "cache_implementation", "chunk_size_feed_forward", "conv_dim", "dtype", "eos_token_id", "ep_size",
    "full_attention_interval", "full_attn_idxs", "id2label", "index_skip_topk_offset", "index_topk_freq",
    "index_topk_pattern", "initial_context_length", "initializer_range", "label2id", "max_window_layers",
    "moe_layer_freq", "moe_shared_expert_overlap", "num_logits_to_keep", "num_nextn_predict_layers",
    "output_attentions", "output_hidden_states", "output_router_logits", "pad_token_id", "pretraining_tp",
    "problem_type", "rescale_prenorm_residual", "return_dict", "scoring_func", "seq_aux", "sliding_window_pattern",
    "tokenizer_class", "topk_method", "torch_dtype", "transformers_version", "use_associative_scan", "use_cache",
    "use_mamba_kernels", "use_mambapy", "use_mem_eff_path",
))  # fmt: skip
"""Keys that no forward pass without gradients reads, that only choose between kernels, or from which a config derives
others (`full_attn_idxs` becomes `layer_types`). N-grams that begin with `eos_token_id` take it from the model."""

_ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "silu", "swish")
_EITHER = (False, True)
_ALSO: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys(("hidden_act", "hidden_activation", "mamba_hidden_act", "mlp_hidden_act"), _ACTIVATIONS),
    **dict.fromkeys(
        (
            "add_bias_linear", "attention_bias", "block_auto_adjust_ff_dim", "conv_bias", "mamba_conv_bias",
            "mamba_norm_before_gate", "mamba_proj_bias", "mamba_rms_norm", "mlp_bias", "moe_renormalize",
            "norm_topk_prob", "projectors_bias", "tie_word_embeddings", "use_bias", "use_conv_bias",
        ),
        _EITHER,
    ),
    "attention_k_eq_v": _EITHER,
    "mamba_ssm_dtype": ("float32",),
    "position_embedding_type": (None, "nope", "rope"),
    "use_bidirectional_attention": (None, False),
}  # fmt: skip
"""Values that need no comparison: they change linear layers, norms and activations, or mean the same."""

_MAY_BE_ABSENT = frozenset(("final_logit_softcapping", "head_dim", "q_lora_rank"))
"""Numbers that may be None where a number was compared, and the other way round."""

_SIZES_OF_A_LAYER = {"head_dim", "num_key_value_heads"}
"""Keys that `per_layer_config` may set for one layer."""

_STATIC_ROPE = ("default", "linear", "llama3", "proportional", "yarn")
_ROPE_KEYS = ("rope_parameters", "rope_scaling")


class _Complaint(NamedTuple):
    """A key whose value was not compared."""

    key: str
    value: object
    compared: Mapping[str, Any]

    @property
    def remedy(self) -> str:
        if self.key in self.compared:
            return f"{self.key} = {self.compared[self.key]!r} has"
        return "the key is not one of this family: remove it from config.json if it means nothing"


def check_compared(model_type: str, text_config: Any) -> None:
    """Raises UnsupportedModelError for a config with a key whose value was not compared. `model_type` is that of the
    model which is loaded."""
    values = text_config.to_dict()
    for key in _ROPE_KEYS:
        _check_rope(model_type, key, values.get(key))
    complaints = [_find_complaint(values, compared) for compared in _compared_configs(model_type)]
    if None not in complaints:
        first = complaints[0]
        assert first is not None
        raise UnsupportedModelError(
            f"{model_type} with {first.key} = {first.value!r} has not been compared with plain Hugging Face; "
            f"{first.remedy}"
        )


def _find_complaint(values: Mapping[str, Any], compared: Mapping[str, Any]) -> _Complaint | None:
    """The first key that differs from one config that was compared."""
    for key, value in values.items():
        if key not in _ROPE_KEYS and not _is_compared(key, value, compared):
            return _Complaint(key, value, compared)
    return None


@cache
def _compared_configs(model_type: str) -> Sequence[Mapping[str, Any]]:
    """All configs of a family that were compared; a new one must match one of them as a whole."""
    if model_type in COMPARISON.served:
        overrides = [{}, *COMPARISON.served[model_type].also]
        return [tiny_text(model_type, **override) for override in overrides]
    name = next(name for name, (cls, _) in TINY_MODELS.items() if getattr(transformers, cls).model_type == model_type)
    return [tiny_text(name)]


def _is_compared(key: str, value: object, compared: Mapping[str, Any]) -> bool:
    if key in _UNREAD or "dropout" in key or value in _ALSO.get(key, ()):
        return True
    if key not in compared:
        return value is None
    known = compared[key]
    if value is None or known is None:
        return value is known or (key in _MAY_BE_ABSENT and (value is None or _is_number(value)))
    if isinstance(known, Mapping):
        return isinstance(value, Mapping) and _has_sizes(value, known)
    if isinstance(known, list):
        return isinstance(value, list) and ((_are_numbers(value) and _are_numbers(known)) or set(value) <= set(known))
    return value == known or (_is_number(value) and _is_number(known))


def _has_sizes(value: Mapping[str, object], known: Mapping[str, object]) -> bool:
    """Numbers by the names that were compared, or sizes of single layers."""
    if known and _are_numbers([*known.values()]):
        return value.keys() == known.keys() and _are_numbers([*value.values()])
    return all(isinstance(own, Mapping) and set(own) <= _SIZES_OF_A_LAYER for own in value.values())


def _check_rope(model_type: str, key: str, rope: object) -> None:
    """Refuses angles that depend on the longest position of a step: they would change with the other requests in it."""
    if not isinstance(rope, Mapping):
        return
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in _STATIC_ROPE:
        raise UnsupportedModelError(
            f"{model_type} with rope_type = {kind!r} in {key} is not served: its angles depend on what else is in a "
            f"step; served are {', '.join(_STATIC_ROPE)}"
        )
    for value in rope.values():
        _check_rope(model_type, key, value)


def _are_numbers(values: list[object]) -> bool:
    return all(map(_is_number, values))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
