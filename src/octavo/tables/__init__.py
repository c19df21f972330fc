"""Containers of millions of keys that never stop their caller for long."""

from octavo.tables.discards import Discards, Part
from octavo.tables.recency import RecencyOrder, RecencyTable
from octavo.tables.sharding import Shards, count_keys, distinct_parts, make_shards

__all__ = [
    "Discards",
    "Part",
    "RecencyOrder",
    "RecencyTable",
    "Shards",
    "count_keys",
    "distinct_parts",
    "make_shards",
]
