"""`CausalModel`: a Hugging Face model behind the one call that the engine makes."""

import inspect
from collections.abc import Container, Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from octavo.engine.models.compressors import run_compressors_by_row
from octavo.engine.models.hf_attention import use_paged_attention
from octavo.engine.models.indexers import run_indexers_by_part
from octavo.engine.models.layers import CacheGeometry, ModelLayer
from octavo.engine.models.mixers import run_mixers_by_segment
from octavo.engine.models.probe import probe_layers
from octavo.engine.models.step_cache import StepCache, cache_argument
from octavo.errors import UnsupportedModelError
from octavo.specs import KVCacheSpec

_CHUNK_SIZE_NAMES = ("mamba_chunk_size", "chunk_size")
_KEPT = "logits_to_keep"
"""Most models take it; others compute the logits of all tokens."""
_DELTA_RULE_CHUNK = 64
"""Tokens per chunk in which gated delta nets compute a prompt; no config names it."""


class CausalModel:
    """A model that computes packed rows of tokens over pages.

    It takes over the Hugging Face model, which then computes steps only.
    """

    def __init__(self, model: PreTrainedModel, family: str) -> None:
        self.family = family
        self.layers: tuple[ModelLayer, ...] = probe_layers(model)
        self._model = model
        self._cache_argument = cache_argument(model)
        self._can_leave_out_logits = _KEPT in inspect.signature(type(model).forward).parameters
        self._config: Any = model.config.get_text_config(decoder=True)
        use_paged_attention(model)
        self._check_asked("state", [layer.index for layer in self.layers if layer.states], run_mixers_by_segment(model))
        self._check_asked("index", [layer.index for layer in self.layers if layer.indexer], run_indexers_by_part(model))
        recorded = [layer.index for layer in self.layers if layer.records]
        self._check_asked("records", recorded, run_compressors_by_row(model))

    def _check_asked(self, kept: str, layers: Sequence[int], wrapped: Container[int]) -> None:
        missed = [layer for layer in layers if layer not in wrapped]
        if missed:
            raise UnsupportedModelError(f"{self.family}: nothing in layers {missed} asks for the {kept} that they keep")

    @property
    def vocab_size(self) -> int:
        return int(self._config.vocab_size)

    @property
    def max_model_len(self) -> int:
        """The longest context that the model was made for."""
        return int(self._config.max_position_embeddings)

    @property
    def dtype(self) -> torch.dtype:
        return self._model.dtype

    @property
    def device(self) -> torch.device:
        return self._model.device

    @property
    def tokens_per_chunk(self) -> int:
        """Tokens per chunk in which recurrent layers compute a prompt; a cut elsewhere wastes part of a chunk."""
        sizes = [getattr(self._config, name, None) for name in _CHUNK_SIZE_NAMES]
        return next((int(size) for size in sizes if size), _DELTA_RULE_CHUNK)

    def kv_cache_specs(self, geometry: CacheGeometry | None = None) -> Mapping[str, KVCacheSpec]:
        """The spec of each layer, by name: the planner's input."""
        geometry = geometry or CacheGeometry()
        specs: dict[str, KVCacheSpec] = {}
        for layer in self.layers:
            specs |= layer.specs(geometry, self.tokens_per_chunk)
        return specs

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, cache: StepCache, logits_of: Sequence[int]
    ) -> torch.Tensor:
        """Logits (len(logits_of), vocab) of these tokens of a packed row."""
        wanted = torch.tensor(logits_of, device=self.device)
        output = self._model(
            input_ids=token_ids[None],
            position_ids=positions[None],
            use_cache=True,
            **{self._cache_argument: cache},
            **({_KEPT: wanted} if self._can_leave_out_logits else {}),
        )
        logits: torch.Tensor = output.logits[0]
        return logits if self._can_leave_out_logits else logits[wanted]
