"""Many copies between host and device by one call of CUDA's driver, which the device's copy engines carry out."""

import ctypes
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Addresses = npt.NDArray[np.uint64]

_IN_STREAM_ORDER = 1
"""A source is read when the stream comes to its copy, not before."""


class _Attributes(ctypes.Structure):
    """CUmemcpyAttributes; places are left for the driver to find."""

    _fields_ = (
        ("access_order", ctypes.c_int),
        ("source_place", ctypes.c_int * 2),
        ("target_place", ctypes.c_int * 2),
        ("flags", ctypes.c_uint),
    )


def copy_all(targets: Addresses, sources: Addresses, sizes: Addresses, stream: int, *, is_pinned: bool) -> None:
    """Enqueues the copies on a stream. Without pinned memory each is waited for."""
    batch = _batch_call() if is_pinned else None
    if batch is None:
        _copy_each(targets, sources, sizes, stream)
    elif len(sizes):
        arrays = (targets.ctypes.data, sources.ctypes.data, sizes.ctypes.data)
        attributes = _Attributes(access_order=_IN_STREAM_ORDER)
        _check(batch.call(*arrays, len(sizes), attributes, ctypes.c_size_t(0), 1, *batch.failed_at, stream))


def _copy_each(targets: Addresses, sources: Addresses, sizes: Addresses, stream: int) -> None:
    copy = _driver().cuMemcpyAsync
    copy.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p)
    for target, source, size in zip(targets.tolist(), sources.tolist(), sizes.tolist(), strict=True):
        _check(copy(target, source, size, stream))


class _BatchCall(NamedTuple):
    call: Any
    failed_at: tuple[Any, ...]
    """Where CUDA 12 puts the index of a copy that it refuses."""


@cache
def _batch_call() -> _BatchCall | None:
    """The driver's call for many copies, which came with CUDA 12.8 and lost an argument with CUDA 13."""
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    arrays = (pointer, pointer, pointer, size)
    attributes = (ctypes.POINTER(_Attributes), ctypes.POINTER(size), size)
    if (call := getattr(_driver(), "cuMemcpyBatchAsync_v2", None)) is not None:
        call.argtypes = (*arrays, *attributes, pointer)
        return _BatchCall(call, ())
    if (call := getattr(_driver(), "cuMemcpyBatchAsync", None)) is not None:
        call.argtypes = (*arrays, *attributes, ctypes.POINTER(size), pointer)
        return _BatchCall(call, (size(0),))
    return None


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _check(result: int) -> None:
    if result:
        raise RuntimeError(f"CUDA's driver could not begin a copy: error {result}")
