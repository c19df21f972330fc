"""Attention of a step's packed queries over keys and values in pages."""

from octavo.engine.attention.context import LayerContext
from octavo.engine.attention.kernels import ScoreRule
from octavo.engine.attention.latent import LatentWeights, attend_latents
from octavo.engine.attention.paged import attend_pages
from octavo.engine.attention.seen_records import SeenRecords
from octavo.engine.attention.selection import Selection

__all__ = [
    "LatentWeights",
    "LayerContext",
    "ScoreRule",
    "SeenRecords",
    "Selection",
    "attend_latents",
    "attend_pages",
]
