"""What commands need beside the core, and the extra that brings it."""

import sys
from collections.abc import Sequence
from traceback import walk_tb

from octavo.errors import InputError, MissingPackageError
from octavo.extras import is_installed, why_not_loaded

LOADS_TORCH = "loads torch and transformers, which takes some seconds"
"""What a command says before `quiet_transformers`: until then it is quick, and after that silent for a while."""

_FOR_SERVERS = ("starlette", "uvicorn", "prometheus_client")
_FOR_ENGINES = ("torch", "transformers", "safetensors", *_FOR_SERVERS, "jinja2")
_FOR_GATEWAYS = (*_FOR_SERVERS, "grpc", "grpc_health", "envoy")


def require_engine() -> None:
    """Raises InputError, with the remedy, if the engine's packages are not installed or cannot work. Imports none."""
    if missing := _missing(_FOR_ENGINES):
        raise MissingPackageError(f"this command runs a model and needs {missing}: pip install 'octavo[engine]'")
    if sys.flags.optimize > 1:
        raise InputError(
            "this command runs a model, and transformers reads docstrings, which Python leaves out under -OO: start it "
            "without, or with -O (PYTHONOPTIMIZE=1)"
        )


def quiet_transformers() -> None:
    """Turns off Hugging Face's own progress bars and advice: a command has its own. It loads torch, which takes
    seconds."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def require_router() -> None:
    """The same of a router's packages; no torch is among them."""
    if missing := _missing(_FOR_SERVERS):
        raise MissingPackageError(f"this command answers over HTTP and needs {missing}: pip install 'octavo[router]'")


def require_gateway() -> None:
    """The same of an endpoint picker's packages."""
    if missing := _missing(_FOR_GATEWAYS):
        raise MissingPackageError(f"this command speaks gRPC and needs {missing}: pip install 'octavo[router,epp]'")


def why_import_failed(error: ImportError) -> str:
    """What a person hears of a package that is installed and cannot be imported, such as torch where its own libraries
    are not found. Octavo's own modules are there: an error about them is raised again."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
    packages = [name.partition(".")[0] for name in (*modules, str(error.name))]
    if packages[-1] == "octavo":
        raise error
    while "octavo" in packages:  # what Octavo imports may fail at what it imports itself
        packages.pop(0)
    return why_not_loaded(next(package for package in packages if package != "importlib"), error)


def _missing(packages: Sequence[str]) -> str:
    return ", ".join(name for name in packages if not is_installed(name))
