"""The families of models that the engine serves, and those that it refuses with a reason.

A family is served only if its tokens were compared with those of plain Hugging Face: a model whose cache is read
wrongly talks nonsense instead of failing.
"""

from difflib import get_close_matches
from types import MappingProxyType

from octavo.engine.admitted import COMPARISON
from octavo.errors import UnsupportedModelError

NAMED = MappingProxyType(
    {
        "bamba": "Bamba",
        "deepseek_v3": "DeepSeek-V3",
        "deepseek_v4": "DeepSeek-V4",
        "falcon_h1": "Falcon-H1",
        "gemma2": "Gemma 2",
        "gemma3_text": "Gemma 3",
        "gemma3n_text": "Gemma 3n",
        "gemma4_text": "Gemma 4",
        "glm5_next": "GLM-5.3",
        "glm_moe_dsa": "GLM-5",
        "gpt_oss": "gpt-oss",
        "granitemoehybrid": "Granite 4",
        "jamba": "Jamba",
        "kimi_linear": "Kimi Linear",
        "lfm2": "LFM2",
        "llama": "Llama",
        "llama4_text": "Llama 4",
        "nemotron_h": "Nemotron-H",
        "olmo_hybrid": "OLMo Hybrid",
        "qwen3": "Qwen3",
        "qwen3_5_text": "Qwen3.5",
        "qwen3_next": "Qwen3-Next",
        "qwen4_exp_text": "Qwen3.8",
        "zamba2": "Zamba2",
    }
)
"""By the `model_type` of what is loaded: families with handwritten tiny models, as something in them is special."""

REFUSED = MappingProxyType(
    {
        "minimax": "MiniMax keeps its state in a cache class of its own",
        "recurrent_gemma": "RecurrentGemma keeps its state inside its modules, where no pool can hold it",
        "mamba": "pure Mamba models have not been tried; Jamba is the served one with this kind of layer",
        "whisper": "Whisper is an encoder-decoder, whose cross-attention the engine does not compute",
        "t5gemma": "T5Gemma is an encoder-decoder, whose cross-attention the engine does not compute",
        "t5gemma2": "T5Gemma 2 merges keys and values of its encoder and its decoder in one attention",
    }
)


def check_family(model_type: str, loaded_type: str) -> str:
    """The name of the family. Raises UnsupportedModelError if it is not served.

    The two types differ where the text model is one part of several, and can be loaded alone.
    """
    if model_type in REFUSED:
        raise UnsupportedModelError(f"{model_type}: {REFUSED[model_type]}")
    if loaded_type in NAMED:
        return NAMED[loaded_type]
    if loaded_type in COMPARISON.served:
        return COMPARISON.served[loaded_type].config.removesuffix("Config")
    served = _near(loaded_type)
    if reason := COMPARISON.refused.get(loaded_type):
        raise UnsupportedModelError(f"{model_type} does not answer as in plain Hugging Face ({reason}); {served}")
    raise UnsupportedModelError(f"{model_type} has not been compared with plain Hugging Face; {served}")


def _near(model_type: str) -> str:
    """What is served, in a sentence: the nearest names, as all of them would fill a screen."""
    served = served_types()
    near = ", ".join(get_close_matches(model_type, served))
    return f"served are {len(served)} families, which docs/engine.md lists" + (
        f"; near this name: {near}" if near else ""
    )


def served_types() -> list[str]:
    """The `model_type` of each family that is served."""
    return sorted({*NAMED, *COMPARISON.served})
