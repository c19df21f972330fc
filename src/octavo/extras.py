"""Packages that pip brings only with one of Octavo's extras, and what a person hears where one is missing or broken."""

from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType, ModuleType

from octavo.errors import MissingPackageError

EXTRA_OF = MappingProxyType(
    {
        **dict.fromkeys(("torch", "transformers", "tokenizers", "safetensors", "jinja2", "llguidance"), "engine"),
        **dict.fromkeys(("starlette", "uvicorn", "prometheus_client"), "router"),
        **dict.fromkeys(("grpc", "grpc_health", "envoy"), "router,epp"),
        **dict.fromkeys(("hypothesis", "pytest"), "testing"),
        "ray": "engine,ray",
        "vllm": "vllm",
        "obstore": "objects",
        "redis": "redis",
        "mooncake": "mooncake",
        "zstandard": "zstd",
        "cryptography": "encryption",
        "matplotlib": "plot",
    }
)
"""The extra that brings a package, by the name that is imported."""


def is_installed(package: str) -> bool:
    """Whether the package can be imported; it is not. A folder of that name without `__init__.py` is no package: the
    current folder may hold one, and pip may leave one behind."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def load_package(package: str, user: str) -> ModuleType:
    """Imports a package. MissingPackageError names its extra; `user` is what needs it, such as "a Redis tier"."""
    try:
        return import_module(package)
    except ImportError as error:
        why = why_not_loaded(package, error) if is_installed(package) else remedy_of(package)
        raise MissingPackageError(f"{user} needs the package {package}: {why}", name=package) from error


def explain_missing(user: str, error: ModuleNotFoundError, extra: str | None) -> ModuleNotFoundError:
    """The error that names the extra, or `extra`, which brings more; the same one if none brings what is missing."""
    package = str(error.name).partition(".")[0]
    if package not in EXTRA_OF or is_installed(package):
        return error
    return MissingPackageError(f"{user} needs the package {package}: {remedy_of(package, extra)}", name=package)


def remedy_of(package: str, extra: str | None = None) -> str:
    return f"pip install 'octavo[{extra or EXTRA_OF[package]}]'"


def why_not_loaded(package: str, error: ImportError) -> str:
    """What is said of a package that is there and cannot be imported, as where it wants another version of a third."""
    return f"{package} is installed and does not load ({error}): see what `pip check` says, or install it again"
