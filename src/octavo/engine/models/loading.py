"""From a folder to a `CausalModel`: never over the network, and with an error that a person can act on."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM

from octavo.engine.models.causal_model import CausalModel
from octavo.engine.models.compared import check_compared
from octavo.engine.models.families import check_family
from octavo.errors import InputError, ModelConfigError, ModelFolderError


def load_model(
    folder: str | Path, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
) -> CausalModel:
    """The model in a local folder (config.json and safetensors), ready to compute steps."""
    folder = Path(folder)
    _check_device(device)
    _check_folder(folder)
    config = _read_config(folder)
    text_config = config.get_text_config(decoder=True)
    family = check_family(config.model_type, text_config.model_type)
    check_compared(text_config)
    model = _read_weights(folder, config, dtype)
    return CausalModel(model.to(device).eval(), family)


def _check_device(device: str | torch.device) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built for the device
        raise InputError(f"device {str(device)!r} cannot be used: {error}") from error


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ModelFolderError(f"{folder} is not a folder; give the one with the model's config.json")
    if not (folder / "config.json").is_file():
        raise ModelFolderError(f"{folder} has no config.json")
    if not any(folder.glob("*.safetensors")):
        raise ModelFolderError(f"{folder} has no *.safetensors; weights in other formats are not read")


def _read_config(folder: Path) -> Any:
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever a config's own checks raise
        raise ModelConfigError(f"{folder / 'config.json'} cannot be read: {error}") from error


def _read_weights(folder: Path, config: Any, dtype: torch.dtype) -> Any:
    loader: Any = AutoModelForCausalLM  # its types know nothing of the report
    try:
        model, report = loader.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation="eager",
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, TypeError, ImportError, RuntimeError, SafetensorError) as error:
        raise ModelConfigError(f"{folder}: the weights cannot be loaded: {error}") from error
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise ModelConfigError(f"{folder}: the weights lack {len(missing)} tensors, {missing[0]} among them")
    return model
