"""`LayerContext`: what the attention of one layer works on in one step."""

from dataclasses import dataclass

import torch

from octavo.engine.attention.seen_records import JoinedByModel, SeenRecords
from octavo.engine.attention.selection import Selection
from octavo.engine.cache import AttentionPages, AttentionStep, LatentPages


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerContext(JoinedByModel):
    """The step's keys and values of one layer, and the reads of earlier ones from its pages.

    A model carries it from its cache update to its attention, in the place of keys and values; layers that share the
    keys and values of another just carry it further.
    """

    step: AttentionStep
    pages: AttentionPages | LatentPages
    keys: torch.Tensor
    """(1, heads, tokens, size) of the packed row; latents for latent attention."""
    values: torch.Tensor
    """(1, heads, tokens, size); rotated keys for latent attention."""
    selection: Selection | None = None
    """What an indexer has chosen; the other tokens are hidden."""

    records: SeenRecords | None = None
    """What is seen beside the tokens."""

    @property
    def shape(self) -> torch.Size:
        """Of the keys, as a model asks that makes a mask of what was chosen."""
        return self.keys.shape
