"""How loading a model fails.

InputError
├── ModelFolderError        there is no such folder, or it lacks a file
├── ModelConfigError        (octavo.errors) the config cannot be read, or does not fit the weights
└── UnsupportedModelError   the model is known not to work here, or not known at all
"""

from octavo.errors import InputError


class ModelFolderError(InputError):
    """A model's folder is not there, or lacks a file."""


class UnsupportedModelError(InputError):
    """A model that this engine does not serve, with the reason."""
