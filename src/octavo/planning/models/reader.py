"""A Hugging Face config.json read into the layers of its text model."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from octavo.errors import MALFORMED, InputError, ModelConfigError, SpecError, why_not_read
from octavo.planning.models.config_view import ConfigView
from octavo.planning.models.encoder_decoder import max_encoder_tokens
from octavo.planning.models.families import Family, find_family
from octavo.planning.models.generic import read_unknown
from octavo.planning.models.model import Model, Target
from octavo.planning.models.model_layers import ModelLayers
from octavo.planning.models.recurrent import STATE_DTYPES
from octavo.planning.models.unread_keys import refuse_unread_keys
from octavo.planning.models.weights import estimated_weight_bytes, stored_weight_bytes
from octavo.settings import read_text_file, shown
from octavo.specs import CacheDType

_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys under which multimodal models keep their language model."""
_MAX_NESTED_PARTS = 4
_LENGTH_KEYS = (
    "max_position_embeddings",
    "model_max_length",
    "max_target_positions",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
)
_QUANTISED_CACHES = ("kv_cache_scheme", "kv_cache_quant_algo")
"""Of compressed-tensors, and of ModelOpt."""
_MODEL_DTYPES = (CacheDType.BFLOAT16, CacheDType.FLOAT16, CacheDType.FLOAT32)


def read_model(
    source: Path | str,
    *,
    block_size: int = 16,
    kv_dtype: str | None = None,
    state_dtype: str | None = None,
    tensor_parallel_size: int = 1,
) -> ModelLayers:
    """The layers of the model whose config.json, or whose folder with one, `source` names."""
    path = Path(source)
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError):
        is_folder = False
    if is_folder:
        path = path / "config.json"
        if not path.exists():
            raise ModelConfigError(f"{path.parent}: no config.json in this folder")
    model = layers_from_config(
        read_json_object(path),
        block_size=block_size,
        kv_dtype=kv_dtype,
        state_dtype=state_dtype,
        tensor_parallel_size=tensor_parallel_size,
        source=str(path),
    )
    stored = stored_weight_bytes(path.parent) if path.name == "config.json" else None
    return model if stored is None else replace(model, weight_bytes=stored)


def layers_from_config(
    config: Mapping[str, object],
    *,
    block_size: int = 16,
    kv_dtype: str | None = None,
    state_dtype: str | None = None,
    tensor_parallel_size: int = 1,
    source: str = "config",
) -> ModelLayers:
    """The layers of the model that `config` describes. `source` is its name in messages."""
    _require_positive("block_size", block_size)
    _require_positive("tensor_parallel_size", tensor_parallel_size)
    parts = _nested_parts(ConfigView(config, source=source))
    family = _find_family(parts)
    model_dtype = _model_dtype(parts)
    model = Model(
        view=parts[-1].read_as(family.defaults, family.names) if family else parts[-1].read_as({}, {}),
        target=Target(
            block_size=block_size,
            kv_dtype=_kv_dtype(kv_dtype, model_dtype),
            model_dtype=model_dtype,
            tensor_parallel_size=tensor_parallel_size,
            state_dtype=_state_dtype(state_dtype),
        ),
        architecture=_architecture(parts),
    )
    if kv_dtype is None:
        model.notes.extend(_note_of_quantised_cache(parts, model_dtype))
    try:
        return _read(model, family)
    except SpecError as cause:
        raise ModelConfigError(f"{source}: {cause}") from cause


def _read(model: Model, family: Family | None) -> ModelLayers:
    layers = (family.read if family else read_unknown)(model)
    refuse_unread_keys(model, layers, is_known=family is not None)
    if not layers:
        raise ModelConfigError(f"{model.view.source}: {model.architecture} has no layer that keeps anything")
    return ModelLayers(
        architecture=model.architecture,
        layers=layers,
        max_model_len=next((n for key in _LENGTH_KEYS if (n := model.view.find_count(key)) is not None), None),
        max_encoder_tokens=max_encoder_tokens(model, layers),
        has_mamba2_state=family is not None and family.has_mamba2_state,
        weight_bytes=_estimated_weight_bytes(model, family),
        notes=(*model.notes, *_note_of_float32(model), *_note_of_defaults(model.view)),
    )


def _estimated_weight_bytes(model: Model, family: Family | None) -> int | None:
    """Bytes of all ranks together, whatever one rank's share of the layers is."""
    if family is None:
        return None
    view = model.view.read_as(family.defaults, family.names)
    whole = replace(model, view=view, target=replace(model.target, tensor_parallel_size=1), notes=[])
    return estimated_weight_bytes(view, family.read(whole), model.target.model_dtype)


def read_json_object(path: Path) -> Mapping[str, object]:
    """What a JSON file of a model holds. Raises ModelConfigError if that is no object."""
    text = read_text_file(path, ModelConfigError)
    try:
        value: object = json.loads(text)
    except MALFORMED as cause:
        raise ModelConfigError(f"{path}: {why_not_read(cause)}") from cause
    if not isinstance(value, dict):
        raise ModelConfigError(f"{path}: must hold a JSON object, not {shown(value)}")
    return value


def _nested_parts(view: ConfigView) -> list[ConfigView]:
    """The configuration, and its parts that lead to the language model, which comes last."""
    parts = [view]
    for _ in range(_MAX_NESTED_PARTS):
        inner = next((key for key in _TEXT_PARTS if parts[-1].has(key)), None)
        part = None if inner is None else parts[-1].find_part(inner)
        if part is None:
            break
        parts.append(part)
    return parts


def _find_family(parts: list[ConfigView]) -> Family | None:
    """The family of the innermost part that names a known model_type."""
    types = [part.find_word("model_type") for part in reversed(parts)]
    return next((family for word in types if word and (family := find_family(word))), None)


def _architecture(parts: list[ConfigView]) -> str:
    for part in parts:
        names = part.find_words("architectures")
        if names:
            return names[0]
    return next((word for part in parts if (word := part.find_word("model_type"))), "unnamed")


def _model_dtype(parts: list[ConfigView]) -> CacheDType:
    for part in reversed(parts):
        for key in ("dtype", "torch_dtype"):
            word = part.find_word(key)
            if word is None or word == "auto":
                continue
            name = word.removeprefix("torch.")
            if name not in _MODEL_DTYPES:
                raise part.problem(key, f"= {word!r} is none of {', '.join(_MODEL_DTYPES)}")
            return CacheDType(name)
    return CacheDType.BFLOAT16


def _kv_dtype(name: str | None, model_dtype: CacheDType) -> CacheDType:
    if name is None or name == "auto":
        return model_dtype
    try:
        return CacheDType.parse(name)
    except SpecError as cause:
        raise InputError(f"kv_dtype: {cause}") from cause


def _state_dtype(name: str | None) -> CacheDType | None:
    if name is None or name == "auto":
        return None
    if name not in STATE_DTYPES:
        raise InputError(f"state_dtype: {shown(name)} is none of {', '.join(STATE_DTYPES)}")
    return CacheDType(name)


def _note_of_float32(model: Model) -> tuple[str, ...]:
    if model.target.kv_dtype is not CacheDType.FLOAT32:
        return ()
    return (
        "The cache is float32, as the config's dtype is; engines often serve such models in 16 bits: set kv_dtype.",
    )


def _note_of_quantised_cache(parts: list[ConfigView], model_dtype: CacheDType) -> tuple[str, ...]:
    """Whether an engine follows it is for the engine's flags to say."""
    for part in parts:
        quantisation = part.values.get("quantization_config")
        if not isinstance(quantisation, Mapping):
            continue
        for key in _QUANTISED_CACHES:
            if quantisation.get(key):
                note = (
                    f"The config quantises the cache too (quantization_config.{key}), and {model_dtype} is planned: "
                    "set kv_dtype, such as fp8, if your engine does so."
                )
                return (note,)
    return ()


def _note_of_defaults(view: ConfigView) -> tuple[str, ...]:
    if not view.defaulted:
        return ()
    listed = ", ".join(f"{key} = {value}" for key, value in view.defaulted.items())
    return (f"Not in the config, so taken from transformers' defaults for this model: {listed}.",)


def _require_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} must be a whole number of 1 or more, not {shown(value)}")
