"""Checks of the JSON files in a model's folder before transformers reads them.

It checks most types itself, and names the key. Where it does not, its complaint is Python's about some line of its own.
"""

from pathlib import Path

import torch

from octavo.planning import ConfigView, read_json_object
from octavo.settings import shown

_SUFFIXES_OF_SIZES = ("_dim", "_embeddings", "_heads", "_layers", "_scalar", "_size", "_window")
_NEVER_ZERO = frozenset((
    "head_dim", "hidden_size", "max_position_embeddings", "num_attention_heads", "num_hidden_layers",
    "num_key_value_heads", "query_pre_attn_scalar", "vocab_size",
))  # fmt: skip
_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_OBJECTS = ("rope_parameters", "rope_scaling")
_EOS = "eos_token_id"
_TOKEN_IDS = ("bos_token_id", _EOS, "pad_token_id")


def check_configs(folder: Path) -> None:
    """Raises ModelConfigError with file, key, and what must stand there."""
    config = _view(folder / "config.json")
    for part in (config, *filter(None, map(config.find_part, _TEXT_PARTS))):
        _check_config(part)
    if (generation := folder / "generation_config.json").exists():
        _check_token_ids(_view(generation))


def check_tokenizer_config(folder: Path) -> None:
    """The same of the tokenizer's file, if there is one."""
    if not (path := folder / "tokenizer_config.json").exists():
        return
    view = _view(path)
    view.find_word("tokenizer_class")
    view.find_part("added_tokens_decoder")
    template = view.values.get("chat_template")
    if not isinstance(template, str | list | None):
        raise view.problem("chat_template", f"must be text, or a list of named ones, not {shown(template)}")


def find_eos_token_ids(folder: Path) -> frozenset[int]:
    """The tokens that end an output: from generation_config.json, or else from config.json."""
    view = _find_eos_view(folder)
    return frozenset() if view is None else frozenset(_ids_in(view.values[_EOS]))


def check_eos(folder: Path, vocab_size: int) -> None:
    """Raises ModelConfigError if all tokens that end an output are ones that the model does not have. Some such beside
    one that it has do no harm: folders of models that were trained further list them."""
    view = _find_eos_view(folder)
    if view is not None and not any(0 <= token < vocab_size for token in _ids_in(view.values[_EOS])):
        raise view.problem(
            _EOS,
            f"must be of the vocabulary, from 0 to {vocab_size - 1:,}, not {shown(view.values[_EOS])}: no output would "
            "end; without such a token it is null",
        )


def _find_eos_view(folder: Path) -> ConfigView | None:
    """The file that says which tokens end an output."""
    paths = (folder / name for name in ("generation_config.json", "config.json"))
    views = (_view(path) for path in paths if path.exists())
    return next((view for view in views if view.has(_EOS)), None)


def _view(path: Path) -> ConfigView:
    return ConfigView(read_json_object(path), source=str(path))


def _check_config(view: ConfigView) -> None:
    view.find_word("model_type")
    _check_token_ids(view)
    never_zero = _NEVER_ZERO - ({"head_dim"} if view.has("kv_lora_rank") else set())  # what of a latent key is rotated
    for key, value in view.values.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and key.endswith(_SUFFIXES_OF_SIZES):
            view.find_count(key, minimum=1 if key in never_zero else 0)
    for key in _OBJECTS:
        view.find_part(key)
    for key in ("dtype", "torch_dtype"):
        name = view.find_word(key)
        if name not in (None, "auto") and not isinstance(
            getattr(torch, name.removeprefix("torch."), None), torch.dtype
        ):
            raise view.problem(key, f"must be a type such as bfloat16, not {name!r}")


def _check_token_ids(view: ConfigView) -> None:
    for key in _TOKEN_IDS:
        value = view.values.get(key)
        listed = value if isinstance(value, list) and key == _EOS else [value]
        if value is not None and len(_ids_in(listed)) < len(listed):
            several = ", or a list of these," if key == _EOS else ","
            raise view.problem(key, f"must be a token's whole number{several} not {shown(value)}")


def _ids_in(value: object) -> list[int]:
    listed = value if isinstance(value, list) else [value]
    return [token for token in listed if isinstance(token, int) and not isinstance(token, bool)]
