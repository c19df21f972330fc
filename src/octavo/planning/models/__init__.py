"""A model's config.json, or a person's own list of layers, read into the spec of every layer.

Values only: nothing is downloaded, no code of the model runs, and neither torch nor transformers is needed.

Inside, where an arrow leads to what a module calls:

    reader -> families                             a config.json; the reader of its family
    reader -> generic, encoder_decoder             an architecture that no family knows; models with an encoder
    layers_file                                    a person's own list of layers
    model -> config_view                           what the reader of a family gets
    model_layers                                   what it returns
    attention_families, gemma, latent, compressed  families with attention only
    delta_families, mamba_families, window_state_families, pooled_keys
                                                   families with recurrent state, mostly beside attention
    attention, recurrent                           the attention and the state of one layer
    unread_keys, weights                           keys that no reader looked at; how large the weights are
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
