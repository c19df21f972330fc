"""What commands that run a model need beside the core."""

from importlib.util import find_spec

from octavo.errors import InputError

_NEEDED = ("torch", "transformers", "safetensors", "starlette", "uvicorn", "prometheus_client", "jinja2")
_NEEDED_BY_GATEWAYS = ("grpc", "grpc_health", "envoy")


def require_engine() -> None:
    """Raises InputError, with the remedy, if the engine's packages are not installed.

    Hugging Face's own progress bars and advice are turned off: a command has its own."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise InputError(f"this command runs a model and needs {', '.join(missing)}: pip install 'octavo[engine]'")
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def require_gateway() -> None:
    """Raises InputError, with the remedy, if an endpoint picker's packages are not installed."""
    require_engine()
    if missing := [name for name in _NEEDED_BY_GATEWAYS if find_spec(name) is None]:
        raise InputError(f"this command speaks gRPC and needs {', '.join(missing)}: pip install 'octavo[engine,epp]'")
