"""Tiny Hugging Face models of the families that the engine serves: seeded, made in a second, saved like real ones.

Their weights, and so their logits, are spread widely: rounding does not change which token is the most likely.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from octavo.engine.admitted import COMPARISON
from octavo.engine.hf_classes import loader_of
from octavo.engine.tiny_families import COMMON_SHAPE, PARTS, TINY_MODELS, VOCAB_SIZE
from octavo.errors import InputError

_CHAT_TEMPLATE = (
    "{% if tools %}tools: {% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}"
    "{% for message in messages %}{{ message.role }}: {{ message.content }}{% for call in message.tool_calls or [] %}"
    "<tool_call>\n{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}\n</tool_call>"
    "{% endfor %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
"""With tool calls as Hermes and Qwen write them."""

_EXPERTS_OF_TOKENS = "tid2eid"
"""DeepSeek V4's first layers have a table that names the experts of each token."""


def tiny_config(name: str, **overrides: Any) -> PreTrainedConfig:
    """The config of a tiny model: one of `TINY_MODELS`, or of a family that a comparison has admitted. `overrides` are
    of its text model."""
    if name in TINY_MODELS:
        (config_class, own), parts = TINY_MODELS[name], PARTS.get(name)
    else:
        family = COMPARISON.served[name]
        config_class, own, parts = family.config, family.own, family.parts
    text = {**COMMON_SHAPE, **own, **overrides}
    make: Any = getattr(transformers, config_class)
    config: PreTrainedConfig = make(**text) if parts is None else make(text_config=text, **parts)
    return config


def tiny_text(name: str, **overrides: Any) -> dict[str, Any]:
    """What the config says of the text model."""
    values: dict[str, Any] = tiny_config(name, **overrides).get_text_config(decoder=True).to_dict()
    return values


def build_tiny_model(name: str, *, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """A model of a family, in float32, with Hugging Face's own attention. The same seed makes the same weights."""
    config = tiny_config(name, **overrides)
    # Where none is wanted some families set their own, which is beyond a tiny vocabulary.
    config.eos_token_id = {**_own_of(name), **overrides}.get("eos_token_id")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = loader_of(config).from_config(config, dtype=torch.float32, attn_implementation="eager")
        _disturb_uniform(model)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    model.train(mode=False)
    return model


def _own_of(name: str) -> Mapping[str, Any]:
    return TINY_MODELS[name][1] if name in TINY_MODELS else COMPARISON.served[name].own


def save_tiny_model(name: str, folder: Path, *, seed: int = 0, **overrides: Any) -> None:
    """Saves a folder with config, weights and a tokenizer, like one that is downloaded. InputError says why it cannot
    be written."""
    model = build_tiny_model(name, seed=seed, **overrides)
    try:
        model.save_pretrained(folder)
        _byte_tokenizer().save_pretrained(folder)
    except Exception as error:  # the writers in Rust raise what has no class of its own
        raise InputError(
            f"cannot write a tiny model to {folder}: {error}; make room there, or take another folder "
            "(TMPDIR names that of temporary files)"
        ) from error


def _disturb_uniform(model: PreTrainedModel) -> None:
    """Makes norms, biases, and whatever has one number throughout random: all ones or all zeros would hide mistakes."""
    for name, parameter in model.named_parameters():
        is_uniform = parameter.dim() == 1 or bool((parameter == parameter.flatten()[0]).all())
        if is_uniform and "A_log" not in name and "dt" not in name:
            parameter.data += 0.1 * torch.randn_like(parameter)
    for name, buffer in model.named_buffers():
        if name.endswith(_EXPERTS_OF_TOKENS):
            buffer.random_(0, model.config.n_routed_experts)


def _byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token per byte after the special ones; the ids above stand for themselves."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<pad>", "<s>", "</s>", *alphabet]
    words += [f"<{index}>" for index in range(len(words), VOCAB_SIZE)]
    tokenizer = Tokenizer(BPE(vocab={word: index for index, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {"pad_token": words[0], "bos_token": words[1], "eos_token": words[2]}
    make: Any = PreTrainedTokenizerFast  # untyped
    fast: PreTrainedTokenizerFast = make(tokenizer_object=tokenizer, **special)
    fast.chat_template = _CHAT_TEMPLATE
    return fast
