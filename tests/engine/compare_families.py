"""Compares every causal model of the installed transformers with plain Hugging Face, and writes down what it found.
A text model that is only to be had as a part of a larger one is compared in it.

    make families                     all that have not been compared
    make families FAMILIES="phi3 cwm" these, anew
    make families FAMILIES=--again    all that are served, anew: for another transformers
    make families FAMILIES=--list     what is served, as docs/engine.md has it

A candidate's tiny config is made of its own defaults, with sizes and reaches made small by their names. It is admitted
if its tokens and log-probabilities are those of Hugging Face `generate`: cold, on hits, in small steps over a pool of
NaNs, from memory, and from a disk after a restart. A flag or a window that a config may also have is tried both ways.
A number that may be a reach, and that the prompts do not cross, keeps a family out: nobody knows then what it does.
"""

import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
import transformers
from admission import MOST_PARAMETERS, NotAdmittedError, compare
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from octavo.engine.admitted import COMPARISON, FILE, AdmittedFamily
from octavo.engine.hf_classes import loader_of
from octavo.engine.models import compared
from octavo.engine.models.families import NAMED, REFUSED, served_types
from octavo.engine.tiny_families import TINY_MODELS
from octavo.engine.tiny_models import tiny_config, tiny_text

FILE_AT = Path(__file__).parents[2] / "src" / "octavo" / "engine" / FILE
SMALL: Mapping[str, Any] = {
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 24,
    "attention_chunk_size": 32, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4,
    "num_experts_per_tok": 2, "num_experts_per_token": 2, "num_expert_group": 1,
    "moe_k": 2, "moe_top_k": 2, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1, "num_shared_experts": 1, "kv_lora_rank": 24,
    "q_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 20, "linear_num_value_heads": 4,
    "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "mamba_n_heads": 8,
    "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_chunk_size": 16, "chunk_size": 16,
    "query_pre_attn_scalar": 16, "index_n_heads": 16, "index_head_dim": 16, "index_topk": 24,
    "indexer_types": ["full", "shared"] * 2,
}  # fmt: skip
"""Where a config has the key, and a value for it."""
SMALL_PARTS: Mapping[str, Any] = {
    "depth": 1, "num_hidden_layers": 1, "hidden_size": 32, "embed_dim": 32, "num_heads": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 32, "out_hidden_size": 64,
    "projection_intermediate_size": 32, "projector_hidden_size": 32, "num_position_embeddings": 16,
    "fullatt_block_indexes": [0], "deepstack_visual_indexes": [0], "alignment_intermediate_size": 64, "d_model": 32,
    "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 32, "output_dim": 64,
    "downsample_hidden_size": 32, "max_source_positions": 64, "layer_types": ["full_attention"],
}  # fmt: skip
"""The same of the parts beside a text model, which no text runs through."""
_ANGLES_OF_IMAGES = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}
"""Three positions in an image; those of a text are all alike."""
LADDER: tuple[Mapping[str, Any], ...] = (
    {"head_dim": 24},  # not that of hidden size over heads: files name it where classes do not
    {},
    {"num_key_value_heads": 4},
    {"num_key_value_heads": 4, "head_dim": 8},  # that of the rotated part of latents
    {"num_key_value_heads": 4, "head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2},
    {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 64},
    {"layer_types": ["conv", "full_attention"] * 2},
    {"num_experts_per_tok": 1},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}},
    {"rope_parameters": _ANGLES_OF_IMAGES, "head_dim": 16},
    {"rope_parameters": {**_ANGLES_OF_IMAGES, "partial_rotary_factor": 0.5}, "head_dim": 32},
)
"""Further keys for families whose parts must fit, one after the other until a model can be made."""
ALSO: tuple[Mapping[str, Any], ...] = (
    {"sliding_window": None},
    {"sliding_window": 24},
    {"use_sliding_window": True, "sliding_window": 24},
)
SECONDS = 240
FOLDER = re.compile(r"/\S+: ")
"""Of the tiny model, in an error's text."""
SPARSE = re.compile(r"sparse|index|block(?!_multiple_of)")
REACH = re.compile(r"window|chunk|stride|span|local|pattern|every|interval|anchor|memory|topk|period")
SIZES = re.compile(r"intermediate|hidden|size|expert|head|rank|vocab|layers|token_id|position|parameters|transformers")
LONGEST_REACH = 40


def find_candidates() -> Iterator[str]:
    """Models that nobody has compared yet. Of several parts count by their text model, unless that is not to be had
    alone."""
    alone, wholes = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES), set(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
    for model_type in sorted((alone | wholes) - {*NAMED, *REFUSED, *COMPARISON.served, *COMPARISON.refused}):
        default = CONFIG_MAPPING[model_type]()
        is_text = default.get_text_config(decoder=True) is default and default.model_type == model_type
        is_loaded = is_text if model_type in alone else hasattr(default, "text_config")
        if is_loaded and not getattr(default, "is_encoder_decoder", False):
            yield model_type


def make_parts(config_class: Any) -> dict[str, Any] | None:
    """What is beside the text model, made small by its keys; None where that is to be had alone."""
    if config_class in MODEL_FOR_CAUSAL_LM_MAPPING:
        return None
    default = config_class()
    parts = {key: part.to_dict() for key in default.sub_configs if (part := getattr(default, key, None)) is not None}
    small = {name: make_small(known) for name, known in parts.items() if name != "text_config"}
    own = default.to_dict().keys() - default.get_text_config(decoder=True).to_dict().keys()
    return {key: SMALL_PARTS[key] for key in sorted(own & SMALL_PARTS.keys())} | small


def make_small(known: Mapping[str, Any]) -> dict[str, Any]:
    small = {key: value for key, value in SMALL_PARTS.items() if known.get(key) is not None}
    return {"model_type": known["model_type"], **small}


def own_of_named(text_type: str) -> Mapping[str, Any]:
    """What the handwritten tiny model of this type has beside the common shape."""
    named = (own for cls, own in TINY_MODELS.values() if getattr(transformers, cls).model_type == text_type)
    return next(named, {})


def make_own(config_class: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """What a tiny model has beside the common shape, by the keys that its family has."""
    known = config_class().get_text_config(decoder=True).to_dict()
    own = {key: value for key, value in SMALL.items() if known.get(key) is not None} | dict(more)
    if config_class not in MODEL_FOR_CAUSAL_LM_MAPPING:
        # It may take text models of several types, also those of other families.
        own |= {"model_type": known["model_type"], **own_of_named(known["model_type"])}
        if known.get("sliding_window", 0) is None:
            own["sliding_window"] = None  # which is not the text model's own default
    kinds = list(dict.fromkeys(known.get("layer_types") or ()))
    if len(kinds) > 1:
        own["layer_types"] = [kinds[index % len(kinds)] for index in range(4)]
    return own


def check_reaches(values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number or value <= LONGEST_REACH or key in compared._UNREAD:
            continue
        if SPARSE.search(key) or (REACH.search(key) and not SIZES.search(key)):
            raise NotAdmittedError(f"{key} = {value} may be a reach that the comparison does not cross")


def check_is_tiny(config: Any) -> None:
    """Without making it: what no key makes small may fill the memory."""
    with torch.device("meta"):
        model = loader_of(config).from_config(config)
    if sum(parameter.numel() for parameter in model.parameters()) > MOST_PARAMETERS:
        raise NotAdmittedError("no tiny model could be made of it")


def variants(values: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Other configs of a family: windows, and every flag the other way round."""
    for also in ALSO:
        if also.keys() <= values.keys() and any(values[key] != value for key, value in also.items()):
            yield dict(also)
    for key, value in values.items():
        is_free = key in compared._UNREAD or key in compared._ALSO or key.startswith(("is_", "use_cache"))
        if isinstance(value, bool) and not is_free and key not in own and key != "use_sliding_window":
            yield {key: not value}


def judge(model_type: str) -> AdmittedFamily:
    """The family as it is served; NotAdmittedError says why not."""
    config_class = CONFIG_MAPPING[model_type]
    last: Exception = NotAdmittedError("no config could be made")
    for more in LADDER:
        try:
            own, parts = make_own(config_class, more), make_parts(config_class)
            family = try_own(model_type, AdmittedFamily(config=config_class.__name__, own=own, parts=parts))
        except NotAdmittedError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a family's code raises
            last = error
            continue
        values = tiny_text(model_type)
        also = [override for override in variants(values, family.own) if answers_alike(model_type, override)]
        return msgspec.structs.replace(family, also=also)
    raise NotAdmittedError(f"{type(last).__name__}: {' '.join(str(last).split())[:120]}")


def try_own(model_type: str, family: AdmittedFamily) -> AdmittedFamily:
    COMPARISON.served[model_type] = family
    compared._compared_configs.cache_clear()
    check_is_tiny(tiny_config(model_type))
    values = tiny_text(model_type)
    check_reaches(values)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model").mkdir()
        compare(model_type, Path(folder))
    return family


def answers_alike(model_type: str, override: dict[str, Any]) -> bool:
    """Whether a family with another flag is served too."""
    family = COMPARISON.served[model_type]
    try:
        try_own(model_type, msgspec.structs.replace(family, own={**family.own, **override}))
    except Exception:  # noqa: BLE001 - then it is not
        return False
    finally:
        COMPARISON.served[model_type] = family
    return True


def write() -> None:
    for mapping in (COMPARISON.served, COMPARISON.refused):
        for name in sorted(mapping):
            mapping[name] = mapping.pop(name)
    encoded = msgspec.json.format(msgspec.json.encode(COMPARISON, order="deterministic"), indent=1)
    FILE_AT.write_bytes(encoded + b"\n")


def give_up(*_: object) -> None:
    raise TimeoutError(f"no answer within {SECONDS} s")


def main() -> None:
    warnings.filterwarnings("ignore")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    if sys.argv[1:] == ["--list"]:
        print(", ".join(served_types()))
        return
    signal.signal(signal.SIGALRM, give_up)
    names = list(COMPARISON.served) if sys.argv[1:] == ["--again"] else sys.argv[1:]
    for model_type in names or list(find_candidates()):
        COMPARISON.refused.pop(model_type, None)
        signal.alarm(SECONDS)
        try:
            COMPARISON.served[model_type] = judge(model_type)
        except Exception as error:  # noqa: BLE001 - a time limit, too
            COMPARISON.served.pop(model_type, None)
            COMPARISON.refused[model_type] = FOLDER.sub("", str(error)) or type(error).__name__
        finally:
            signal.alarm(0)
        print(model_type, COMPARISON.refused.get(model_type, "is served"), flush=True)
        write()


if __name__ == "__main__":
    main()
