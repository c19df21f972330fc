"""Which of a rank's pages are known: how several ranks share them, so that chunks are the same for any number of ranks.

A page that is not recognised counts as unknown, with the reason: wrong bytes would be worse than a cold start.
Circular buffers do not count, as vLLM offers none: a request that resumes at a boundary needs nothing of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from hashlib import sha256
from math import prod
from typing import Any

from vllm.config import SpeculativeConfig, VllmConfig, get_layers_from_vllm_config
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.layers.mamba import mamba_utils
from vllm.v1.kv_cache_interface import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)
from vllm.v1.kv_offload.config import OffloadingConfig

from octavo.errors import CacheLayoutError
from octavo.ids import GroupIdx, enumerate_groups
from octavo.transfer import (
    CanonicalKVCaches,
    Page,
    Rows,
    attention_page,
    replicated_page,
    share_page,
    state_page,
)

_BACKENDS = ("CPU_ATTN", "FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION")
"""Attention kernels that keep the bytes of a KV head as strides say, and nothing beside them."""
_STATES = {"MAMBA1": True, "MAMBA2": True, "SHORT_CONV": True, "GDN_ATTN": False}
"""Kernel -> whether a convolution's own values come before those of the groups (B, C; queries, keys)."""
_OF_RANKS = ("num_kv_heads", "num_head_slots", "max_tp_shards", "shapes", "num_heads", "page_size_padded")
"""Fields of a spec that depend on one rank's share or on padding. The others are the same for any number of ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPage:
    """The page of a group in a rank that is alone."""

    page: Page
    num_bytes: int
    digest: str
    """A digest of the layout of the page."""


def know_pages(
    config: OffloadingConfig, vllm_config: VllmConfig, kv_cache_config: KVCacheConfig, caches: CanonicalKVCaches
) -> list[KnownPage | str]:
    """Per offloaded group: its page, or why it is not known."""
    layers: dict[str, Any] = get_layers_from_vllm_config(vllm_config, AttentionLayerBase)
    reader = _Reader(config, vllm_config, layers)
    known: list[KnownPage | str] = []
    for index, group in enumerate_groups(config.groups):
        spec = kv_cache_config.kv_cache_groups[group.group_id].kv_cache_spec
        specs = getattr(spec, "kv_cache_specs", None) or dict.fromkeys(group.layer_names, spec)
        try:
            known.append(reader.read_group({name: specs[name] for name in group.layer_names}, caches, index))
        except CacheLayoutError as error:
            known.append(str(error))
        except AttributeError as error:
            known.append(f"this vLLM describes its caches otherwise ({error})")
    return known


class _Reader:
    def __init__(self, config: OffloadingConfig, vllm_config: VllmConfig, layers: dict[str, Any]) -> None:
        parallel = config.parallel
        self._layers = layers
        self._rank, self._num_ranks = parallel.rank, parallel.world_size
        self._is_split_otherwise = parallel.world_size != parallel.tp_size or parallel.dcp_size > 1
        speculation = vllm_config.speculative_config
        self._has_draft = speculation is not None and may_cache_drafts(speculation)
        self._model = vllm_config.model_config
        self._text: dict[str, Any] = self._model.hf_text_config.to_dict()

    def read_group(self, specs: dict[str, KVCacheSpec], caches: CanonicalKVCaches, index: GroupIdx) -> KnownPage:
        if self._is_split_otherwise:
            raise CacheLayoutError("ranks share more than heads: pipeline or context parallelism")
        if self._num_ranks > 1 and self._has_draft:
            raise CacheLayoutError("a draft model may split its heads otherwise")
        refs = caches.group_refs[index]
        if len(refs) != len(specs):
            raise CacheLayoutError("its layers are packed in one piece")
        whole: list[Rows] = []
        for (name, spec), ref in zip(specs.items(), refs, strict=True):
            page = self._page_of(name, spec)
            share = share_page(page, self._rank, self._num_ranks)
            if share.page_bytes != ref.page_size_bytes or ref.offset:
                raise CacheLayoutError(f"{name} has {ref.page_size_bytes} bytes where {share.page_bytes} are known")
            whole += page
        described = [(name, type(spec).__name__, list(_constant(spec))) for name, spec in specs.items()]
        return KnownPage(
            page=tuple(whole),
            num_bytes=sum(rows.num_rows * rows.row_bytes for rows in whole),
            digest=sha256(str((described, whole)).encode()).hexdigest(),
        )

    def _page_of(self, name: str, spec: Any) -> Page:
        if type(spec) is MambaSpec:
            return self._state_page(spec)
        if type(spec) in (MLAAttentionSpec, SlidingWindowMLASpec):
            return replicated_page(spec.unpadded_page_size_bytes)
        if type(spec) in (FullAttentionSpec, SlidingWindowSpec, ChunkedLocalAttentionSpec):
            return self._attention_page(name, spec)
        raise CacheLayoutError(f"{name} is of a kind whose layout is not known, {type(spec).__name__}")

    def _attention_page(self, name: str, spec: AttentionSpec) -> Page:
        layer = self._layers[name]
        backend, tensor = layer.get_attn_backend().get_name(), layer.kv_cache
        if backend not in _BACKENDS or spec.kv_quant_mode:
            raise CacheLayoutError(f"{name} has a format of its own ({backend}, {spec.kv_quant_mode.name})")
        *_, heads, tokens, cell = tensor.shape
        if tensor.dim() != 4 or heads != spec.num_kv_heads or spec.block_size % tokens or tensor.stride(3) != 1:
            raise CacheLayoutError(f"{name} has caches of shape {tuple(tensor.shape)}, strides {tensor.stride()}")
        strides = tensor.stride(1), tensor.stride(2)
        heads_first = strides == (tokens * cell, cell)
        if not heads_first and strides != (cell, heads * cell):
            raise CacheLayoutError(f"{name} has heads and tokens {strides} elements apart")
        page: Page = attention_page(
            num_heads=self._all_kv_heads(name, spec),
            head_bytes=cell * tensor.element_size(),
            num_tokens=tokens,
            heads_first=heads_first,
        )
        return page * int(spec.block_size // tokens)

    def _all_kv_heads(self, name: str, spec: AttentionSpec) -> int:
        """The KV heads of all ranks. The model gives one number: layers that differ from it cannot be told apart when
        there are as many ranks as heads."""
        if self._num_ranks == 1:
            return int(spec.num_kv_heads)
        total: int = self._model.get_total_num_kv_heads()
        said = [value for key, value in self._text.items() if "key_value_heads" in key or "kv_heads" in key]
        if any(value != total for value in said if value is not None):
            raise CacheLayoutError(f"the model's layers have different numbers of KV heads, {said}")
        if spec.num_kv_heads != max(1, total // self._num_ranks):
            raise CacheLayoutError(f"{name} has {spec.num_kv_heads} of the model's {total} KV heads")
        return total

    def _state_page(self, spec: MambaSpec) -> Page:
        if spec.tp_replicated:
            return replicated_page(spec.state_content_size_bytes)
        kernel = spec.mamba_type.name
        if kernel not in _STATES:
            raise CacheLayoutError(f"states of {kernel} are not known")
        item_bytes = [dtype.itemsize for dtype in spec.dtypes]
        num_groups = self._num_groups() if kernel == "MAMBA2" else None
        page = state_page(
            spec.shapes,
            item_bytes,
            num_ranks=self._num_ranks,
            has_one_group=num_groups == 1,
            values_first=_STATES[kernel],
            steps_first=not mamba_utils.is_conv_state_dim_first(),
        )
        share = share_page(page, self._rank, self._num_ranks)
        if share.page_bytes != sum(prod(s) * item for s, item in zip(spec.shapes, item_bytes, strict=True)):
            raise CacheLayoutError(f"states of shapes {spec.shapes} are not made of {num_groups} groups")
        return page

    def _num_groups(self) -> int | None:
        """The groups of Mamba 2. vLLM gives each rank its own group if there is only one, so shapes do not tell."""
        if self._num_ranks == 1:
            return None
        named = {self._text[key] for key in ("n_groups", "mamba_n_groups", "mamba_ngroups") if key in self._text}
        if len(named) != 1:
            raise CacheLayoutError("the model's config does not say how many groups a state has")
        (num_groups,) = named
        return int(num_groups)


def may_cache_drafts(config: SpeculativeConfig) -> bool:
    """Whether what drafts may have a cache: all but those without a model."""
    return config.method not in ("ngram", "ngram_gpu", "suffix")


def _constant(spec: KVCacheSpec) -> Iterator[tuple[str, str]]:
    for field in fields(spec):
        if field.name not in _OF_RANKS:
            yield field.name, str(getattr(spec, field.name))
