"""Translates between torch's element types and the plan's."""

import torch

from octavo.errors import InputError, SpecError
from octavo.specs import CacheDType

_TORCH_DTYPES = {
    CacheDType.FLOAT32: torch.float32,
    CacheDType.FLOAT16: torch.float16,
    CacheDType.BFLOAT16: torch.bfloat16,
}
_CACHE_DTYPES = {dtype: cache_dtype for cache_dtype, dtype in _TORCH_DTYPES.items()}


def torch_dtype(dtype: CacheDType) -> torch.dtype:
    """The torch type of a cache of this type."""
    return _TORCH_DTYPES[dtype]


def cache_dtype(dtype: torch.dtype) -> CacheDType:
    """The plan's name of a torch type."""
    return _CACHE_DTYPES[dtype]


def parse_dtype(name: str) -> torch.dtype:
    """The type in which a model computes, parsed from a setting."""
    try:
        return _TORCH_DTYPES[CacheDType.parse(name)]
    except (SpecError, KeyError):
        raise InputError(f"a model cannot compute in {name!r}; choose one of {', '.join(_TORCH_DTYPES)}") from None
