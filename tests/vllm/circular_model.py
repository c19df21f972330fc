"""A Llama with a circular buffer: each token adds the mean of those that share its record.

Indexers of GLM-5.3 and Qwen3.8 keep raw keys so. vLLM has no kernels for them on a CPU.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from vllm import ModelRegistry
from vllm.config import VllmConfig
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.models.llama import LlamaForCausalLM
from vllm.v1.attention.backend import AttentionBackend, AttentionMetadataBuilder
from vllm.v1.kv_cache_interface import CircularBufferSpec

TOKENS_PER_RECORD, CAPACITY = 4, 8


@dataclass
class Rows:
    """Where each request's tokens begin in the step, their positions, and its block."""

    starts: list[int]
    positions: list[int]
    blocks: list[int]


class RowsBuilder(AttentionMetadataBuilder):  # type: ignore[misc]
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> Rows:
        step = common_attn_metadata
        return Rows(
            starts=step.query_start_loc_cpu[: step.num_reqs + 1].tolist(),
            positions=step.positions.tolist(),
            blocks=step.block_table_tensor[: step.num_reqs, 0].tolist(),
        )


class RowsBackend(AttentionBackend):  # type: ignore[misc]
    @staticmethod
    def get_name() -> str:
        return "CIRCULAR_BUFFER"

    @staticmethod
    def get_impl_cls() -> type[Any]:
        raise NotImplementedError("the layer computes by itself")

    @staticmethod
    def get_builder_cls() -> type[RowsBuilder]:
        return RowsBuilder


class OpenRecords(nn.Module, AttentionLayerBase):  # type: ignore[misc]
    def __init__(self, vllm_config: VllmConfig, name: str) -> None:
        super().__init__()
        self._name = name
        self._size = vllm_config.model_config.get_hidden_size()
        self.kv_cache = torch.tensor([])
        vllm_config.compilation_config.static_forward_context[name] = self

    def bind_kv_cache(self, kv_cache: torch.Tensor) -> None:
        self.kv_cache = kv_cache.squeeze(1)

    def get_attn_backend(self) -> type[AttentionBackend]:
        return RowsBackend

    def get_kv_cache_spec(self, vllm_config: VllmConfig) -> CircularBufferSpec:
        return CircularBufferSpec(
            block_size=CAPACITY, num_kv_heads=1, head_size=self._size, head_size_v=0, dtype=torch.float32
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        metadata = get_forward_context().attn_metadata
        if metadata is None:  # vLLM tries the model without requests
            return hidden
        rows: Rows = metadata[self._name]
        added = torch.zeros_like(hidden)
        for start, end, block in zip(rows.starts, rows.starts[1:], rows.blocks, strict=False):
            slots = self.kv_cache[block, :CAPACITY]
            for index in range(start, end):
                slot = rows.positions[index] % CAPACITY
                slots[slot] = hidden[index].float()
                added[index] = slots[slot // TOKENS_PER_RECORD * TOKENS_PER_RECORD : slot + 1].mean(0)
        return hidden + added


class LlamaWithOpenRecords(LlamaForCausalLM):  # type: ignore[misc]
    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "", **options: Any) -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix, **options)
        self.open_records = OpenRecords(vllm_config, "open_records.0")

    def forward(self, *arguments: Any, **named: Any) -> torch.Tensor:
        hidden: torch.Tensor = self.open_records(super().forward(*arguments, **named))
        return hidden


def register() -> None:
    ModelRegistry.register_model(LlamaWithOpenRecords.__name__, LlamaWithOpenRecords)
