"""Loads a `CausalModel` from a local folder, never over the network, with errors that a person can act on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoConfig

from octavo.engine.hf_classes import loader_of, type_of_loaded
from octavo.engine.models.causal_model import CausalModel
from octavo.engine.models.compared import check_compared
from octavo.engine.models.families import check_family
from octavo.engine.models.folder_files import check_configs, check_eos
from octavo.engine.models.versions import check_transformers
from octavo.errors import InputError, ModelConfigError, ModelFolderError
from octavo.planning import read_json_object
from octavo.units import counted


def load_model(
    folder: str | Path, dtype: torch.dtype | None = torch.float32, device: str | torch.device = "cpu"
) -> CausalModel:
    """The model in a local folder (config.json and safetensors), ready to compute steps. Without a dtype it computes in
    the one that its config names, float32 where it names none."""
    about = read_about(Path(folder), device)
    config, text_config = about.config, about.text_config
    model = _read_weights(Path(folder), config, dtype or _own_dtype(config, text_config))
    return CausalModel(model.to(device).eval(), about.family)


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutModel:
    """What a folder tells about its model without its weights."""

    config: Any
    text_config: Any
    """The text part of `config`; `config` itself where there is no other part."""
    family: str

    @property
    def max_model_len(self) -> int:
        """The longest context that the model was made for."""
        return int(self.text_config.max_position_embeddings)


def read_about(folder: Path, device: str | torch.device) -> AboutModel:
    """Reads the config, and refuses a model that cannot be served on this device before any weight is read."""
    check_transformers()
    _check_device(device)
    _check_folder(folder)
    check_configs(folder)
    config = _read_config(folder)
    text_config = config.get_text_config(decoder=True)
    loaded = type_of_loaded(config)
    family = check_family(config.model_type, loaded)
    check_compared(loaded, text_config)
    check_eos(folder, text_config.vocab_size)
    return AboutModel(config=config, text_config=text_config, family=family)


def _own_dtype(*configs: Any) -> torch.dtype:
    named = (dtype for config in configs if isinstance(dtype := getattr(config, "dtype", None), torch.dtype))
    return next(named, torch.float32)


def _check_device(device: str | torch.device) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built for the device
        said = str(error).partition("\n")[0]
        remedy = "install torch's build for this device, or choose the device cpu"
        raise InputError(f"device {str(device)!r} cannot be used: {said}; {remedy}") from error


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ModelFolderError(f"{folder} is not a folder; give the one with the model's config.json")
    if not (folder / "config.json").is_file():
        raise ModelFolderError(f"{folder} has no config.json")
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise ModelFolderError(f"{folder} has no *.safetensors; weights in other formats are not read")
    for file in weights:
        _check_is_readable(file)


def _check_is_readable(file: Path) -> None:
    """The library of safetensors calls every file that it may not open "No such file"."""
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise ModelFolderError(f"{file} cannot be read: {error.strerror}") from error


def _read_config(folder: Path) -> Any:
    model_type = read_json_object(folder / "config.json").get("model_type")
    if isinstance(model_type, str) and model_type not in CONFIG_MAPPING:
        check_family(model_type, model_type)  # transformers would say to upgrade it, or to run the model's own code
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a config's own checks may raise anything
        raise ModelConfigError(f"{folder / 'config.json'} cannot be read: {error}") from error


def _by(shape: torch.Size) -> str:
    return " x ".join(map(str, shape))


def _read_weights(folder: Path, config: Any, dtype: torch.dtype) -> Any:
    try:
        model, report = loader_of(config).from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation="eager",
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are told of below, by name
        )
    except MemoryError:
        raise
    except Exception as error:  # a model's code can trip over anything in its config
        raise ModelConfigError(f"{folder}: the weights cannot be loaded: {error}") from error
    if report["mismatched_keys"]:
        name, stored, wanted = min(report["mismatched_keys"])
        raise ModelConfigError(
            f"{folder}: the weights are of another model than config.json: {name} has {_by(stored)} numbers, and "
            f"config.json asks for {_by(wanted)}"
        )
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise ModelConfigError(f"{folder}: the weights lack {counted(len(missing), 'tensor')}, such as {missing[0]}")
    return model
