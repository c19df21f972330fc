"""Triton's interpreter in the place of its backend for CPUs, which is no package. To be imported before vLLM is."""

import importlib
import os
from types import SimpleNamespace
from typing import Any
from unittest import mock

import vllm_environment  # noqa: F401 - before vLLM

os.environ["TRITON_INTERPRET"] = "1"

import triton.backends
from triton.runtime import driver
from triton.runtime.interpreter import InterpreterBuilder, InterpreterOptions, interpreter_builder


def _measure_nothing(*_: Any, **__: Any) -> list[float]:
    """Of one configuration as of another: there is no device to try them on."""
    return [1.0, 1.0, 1.0]


interpreter_builder.options = InterpreterOptions(sanitize_overflow=False)  # takes a third of the time
triton.backends.backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: True))
driver.set_active(SimpleNamespace(get_benchmarker=lambda: _measure_nothing))


def _with_masks_of_bits(name: str, index: int) -> None:
    """The interpreter makes numbers of masks that were reckoned from a scalar, and then refuses them."""
    original = getattr(InterpreterBuilder, name)

    def changed(*arguments: Any) -> Any:
        mask = arguments[index]
        mask.data = mask.data.astype(bool)
        return original(*arguments)

    setattr(InterpreterBuilder, name, changed)


_with_masks_of_bits("create_masked_load", 2)
_with_masks_of_bits("create_masked_store", 3)


def take_scans_of_gpus() -> None:
    """Mamba 2's scan in Triton. The one that vLLM has for CPUs keeps no state from inside a prompt, and fails where
    prefixes are cached."""
    scans = importlib.import_module("vllm.model_executor.layers.mamba.ops.ssd_combined")
    from vllm.platforms import current_platform

    with mock.patch.object(type(current_platform), "is_cpu", return_value=False):
        importlib.reload(scans)
    _with_rows_that_lie_together()


def _with_rows_that_lie_together() -> None:
    """oneDNN, which vLLM takes on CPUs without AMX, refuses the transposed answer of Mamba 1's scan."""
    from vllm import _custom_ops

    multiply = _custom_ops.onednn_mm
    _custom_ops.onednn_mm = lambda handler, x, bias: multiply(handler, x.contiguous(), bias)
