"""Containers of millions of keys that never stop their caller for long."""

from octavo.tables.discards import Discards, Part
from octavo.tables.linked import LinkedLists
from octavo.tables.recency import RecencyOrder, RecencyTable
from octavo.tables.recent import Recent
from octavo.tables.sharding import ShardedDict

__all__ = [
    "Discards",
    "LinkedLists",
    "Part",
    "RecencyOrder",
    "RecencyTable",
    "Recent",
    "ShardedDict",
]
