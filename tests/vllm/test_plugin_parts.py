"""Parts of the adapter alone: rows of chunks, and whose chunks are not kept."""

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

with warnings.catch_warnings():  # torch's, while vLLM is imported
    warnings.simplefilter("ignore")
    pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")
    from octavo.vllm_plugin.adapter.describe import tell_why_not_kept
    from octavo.vllm_plugin.adapter.worker import fill_load, fill_store

pytestmark = [pytest.mark.vllm, pytest.mark.every_vllm, pytest.mark.filterwarnings("ignore")]


def test_rows_of_chunks():
    assert fill_load([5, 6, 7], 1, 2, 3) == [[-1, 5, 6], [7, -1, -1]]
    assert fill_store([5, 6, 7], 0, 1, 3, 0) == [[5, 6, 7]]
    assert fill_store([6, 7, 1, 2, 3], 1, 2, 3, 1) == [[6, 6, 7], [1, 2, 3]]
    assert fill_store([7, 1, 2, 3], 2, 2, 3, 1) == [None, [1, 2, 3]]  # somebody would ask for the second
    assert fill_store([5, 7], 0, 1, 3, 1) == [None]  # which is missing, the second or the third?


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({}, ""),
        ({"lora_config": object()}, "adapters are known by name only"),
        ({"load_config": SimpleNamespace(load_format="dummy")}, "the weights are random"),
        ({"weight_transfer_config": object()}, "weights come into the running engine"),
    ],
)
def test_whose_weights_are_not_the_folders_keeps_nothing(named: dict[str, Any], said: str) -> None:
    usual = {
        "lora_config": None,
        "load_config": SimpleNamespace(load_format="auto"),
        "weight_transfer_config": None,
    }
    reason = tell_why_not_kept(SimpleNamespace(**usual | named))  # type: ignore[arg-type]
    assert said in reason
    assert bool(said) == bool(reason)
