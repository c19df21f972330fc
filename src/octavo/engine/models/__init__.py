"""Hugging Face models behind one narrow interface. Nothing above this package imports transformers' models."""

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
