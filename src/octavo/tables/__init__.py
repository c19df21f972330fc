"""Containers of millions of keys that never stop their caller for long."""

from octavo.tables.discards import Discards, Part
from octavo.tables.recency import RecencyOrder, RecencyTable
from octavo.tables.sharding import ShardedDict

__all__ = [
    "Discards",
    "Part",
    "RecencyOrder",
    "RecencyTable",
    "ShardedDict",
]
