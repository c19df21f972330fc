"""A model's config.json, or a person's own list of layers, read into the spec of every layer.

Values only: nothing is downloaded, no code of the model runs, and neither torch nor transformers is needed.
"""

from octavo.planning.models.config_view import ConfigView
from octavo.planning.models.layers_file import read_layers_file
from octavo.planning.models.model_layers import ModelLayers
from octavo.planning.models.reader import layers_from_config, read_json_object, read_model

__all__ = [
    "ConfigView",
    "ModelLayers",
    "layers_from_config",
    "read_json_object",
    "read_layers_file",
    "read_model",
]
