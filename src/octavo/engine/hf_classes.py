"""Which of Hugging Face's classes makes a model with logits of a config."""

from typing import Any

from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
)


def loader_of(config: PreTrainedConfig) -> Any:
    """That of the text model alone; of all parts where there is no such one. Untyped in transformers."""
    return AutoModelForCausalLM if _has_text_alone(config) else AutoModelForImageTextToText


def type_of_loaded(config: PreTrainedConfig) -> str:
    """The `model_type` of what is loaded."""
    text_type: str = config.get_text_config(decoder=True).model_type
    return text_type if _has_text_alone(config) else config.model_type


def _has_text_alone(config: PreTrainedConfig) -> bool:
    return type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
