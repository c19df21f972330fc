"""Hugging Face models behind one narrow interface. Nothing above this package imports transformers' models.

Inside, where an arrow leads to what a module calls:

    loading -> causal_model                      the model of a folder, behind the one call that the engine makes
    folder_files, families, compared, versions   what is refused before weights are read, and why
    causal_model -> probe -> layers              what each layer keeps, found by running two tokens; its specs
    record_shape, ngrams                         layers that keep records of several tokens, or the last tokens
    step_cache                                   what a model sees as its cache while it computes one step
    hf_attention, mixers -> mamba1               attention and recurrent layers over a packed row
    compressors, indexers -> head_indexers       what sparse attention keeps beside its keys, and chooses by
    equal_scores                                 what is chosen of equal scores
"""

from octavo.engine.models.causal_model import CausalModel
from octavo.engine.models.folder_files import find_eos_token_ids
from octavo.engine.models.layers import AttentionShape, CacheGeometry, ModelLayer, StateTensor
from octavo.engine.models.loading import load_model, read_about
from octavo.errors import ModelFolderError, UnsupportedModelError

__all__ = [
    "AttentionShape",
    "CacheGeometry",
    "CausalModel",
    "ModelFolderError",
    "ModelLayer",
    "StateTensor",
    "UnsupportedModelError",
    "find_eos_token_ids",
    "load_model",
    "read_about",
]
