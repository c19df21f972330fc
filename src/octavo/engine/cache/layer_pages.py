"""One layer's part of its group's pages, as tensors of its own type."""

from math import prod

import torch

from octavo.engine.cache.pages import DevicePages
from octavo.engine.torch_dtypes import torch_dtype
from octavo.ids import GroupIdx
from octavo.specs import AttentionSpec, MambaSpec, MLAAttentionSpec


class TokenPages:
    """What one attention layer keeps for each token: two vectors of every head, side by side.

    page    | token 0: first vectors of all heads, second vectors of all heads | token 1: ... |

    So one copy of whole pages brings both. Indexing the slots takes 3.4 times as long.
    """

    def __init__(self, pages: DevicePages, group_idx: GroupIdx, offset_bytes: int, spec: AttentionSpec) -> None:
        second_size = spec.head_size if spec.head_size_v is None else spec.head_size_v
        self._first_shape = (spec.num_kv_heads, spec.head_size)
        self._second_shape = (spec.num_kv_heads, second_size)
        self._token_size = spec.num_kv_heads * (spec.head_size + second_size)
        num_slots = spec.block_size // self._tokens_per_slot(spec)
        self._rows = pages.typed_view(group_idx, offset_bytes, num_slots * self._token_size, torch_dtype(spec.dtype))
        self._slots = self._rows.view(-1, num_slots, self._token_size)

    def _tokens_per_slot(self, spec: AttentionSpec) -> int:
        return 1

    def write(self, rows: torch.Tensor, slots: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> None:
        """Writes vectors (1, heads, tokens, size) to slots of rows, one row and slot per token."""
        by_token = [vectors[0].transpose(0, 1).flatten(1) for vectors in (first, second)]
        self._slots[rows, slots] = torch.cat(by_token, -1)

    def gather_joined(self, rows: torch.Tensor, num_sequences: int) -> torch.Tensor:
        """(sequences, tokens, elements of a token) of equally many rows per sequence."""
        return self._rows.index_select(0, rows).view(num_sequences, -1, self._token_size)


class AttentionPages(TokenPages):
    """Keys and values of one layer."""

    def gather(self, rows: torch.Tensor, num_sequences: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values (sequences, heads, tokens, size) of equally many rows per sequence."""
        joined = self.gather_joined(rows, num_sequences)
        num_keys = prod(self._first_shape)
        keys = joined[..., :num_keys].view(num_sequences, -1, *self._first_shape)
        values = joined[..., num_keys:].view(num_sequences, -1, *self._second_shape)
        return keys.transpose(1, 2), values.transpose(1, 2)


class SharedPages(AttentionPages):
    """Keys of one layer, of one head, that are its values too."""

    def write(self, rows: torch.Tensor, slots: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> None:
        super().write(rows, slots, first, second[..., :0])

    def gather(self, rows: torch.Tensor, num_sequences: int) -> tuple[torch.Tensor, torch.Tensor]:
        keys = self.gather_joined(rows, num_sequences)[:, None]
        return keys, keys


class LatentPages(TokenPages):
    """Latents of one layer with their rotated keys. Its spec counts them as one vector."""

    def gather(self, rows: torch.Tensor, num_sequences: int) -> torch.Tensor:
        """(sequences, 1, tokens, rank + size of a rotated key) of equally many rows per sequence."""
        return self.gather_joined(rows, num_sequences)[:, None]


class IndexPages(TokenPages):
    """The keys of one layer's indexer: one vector per token, or for several."""

    def __init__(self, pages: DevicePages, group_idx: GroupIdx, offset_bytes: int, spec: MLAAttentionSpec) -> None:
        self.tokens_per_key, self.block_size = spec.tokens_per_state, spec.block_size
        super().__init__(pages, group_idx, offset_bytes, spec)

    def _tokens_per_slot(self, spec: AttentionSpec) -> int:
        return self.tokens_per_key

    def write_keys(self, rows: torch.Tensor, slots: torch.Tensor, keys: torch.Tensor) -> None:
        """Writes keys (tokens, size). A slot is a token's; that of a key for several is the slot of any of them."""
        self._slots[rows, slots // self.tokens_per_key] = keys


class OpenPages(TokenPages):
    """What an indexer keeps of the tokens whose common key is still to be made: one vector per token."""

    def write_open(self, rows: torch.Tensor, slots: torch.Tensor, vectors: torch.Tensor) -> None:
        self._slots[rows, slots] = vectors

    def read_open(self, rows: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        return self._slots[rows, slots]


class StatePages:
    """The recurrent state of one layer: each page holds its tensors one after the other."""

    def __init__(self, pages: DevicePages, group_idx: GroupIdx, offset_bytes: int, spec: MambaSpec) -> None:
        self.tensors = [
            pages.typed_view(group_idx, offset_bytes + start, prod(shape), torch_dtype(dtype)).view(-1, *shape)
            for start, shape, dtype in zip(spec.tensor_offsets, spec.shapes, spec.dtypes, strict=True)
        ]
        """One tensor (num_blocks, *shape) per tensor of the spec, in its order."""
