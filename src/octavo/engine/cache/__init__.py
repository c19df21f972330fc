"""The cache of a running model: typed views of the pool's pages, and each step's reads and writes.

Inside, where an arrow leads to what a module calls:

    layer_pages -> pages                          one layer's part of its group's pages; the pool as bytes
    packing                                       the packed row: all tokens of a step's sequences
    attention_step -> visibility                  a step in one group of attention layers; what a query sees
    state_step, bound_states                      a step in one group of recurrent layers; one layer's states
    index_reads, pooled_reads                     what an indexer keeps and reads: keys of one token or of several
    record_pages -> record_step -> record_reads   records of several tokens: where they lie, made, and read
    records                                       what one layer keeps of them in one step
"""

from octavo.engine.cache.attention_step import AttentionStep, AttentionStepPlanner, SingleReads, TileReads
from octavo.engine.cache.bound_states import BoundStates, StateKey
from octavo.engine.cache.index_reads import IndexPart, IndexReads, cut_row, most_queries
from octavo.engine.cache.layer_pages import AttentionPages, IndexPages, LatentPages, OpenPages, SharedPages, StatePages
from octavo.engine.cache.packing import PackedRow, PackedSequence, pack
from octavo.engine.cache.pages import DevicePages
from octavo.engine.cache.pooled_reads import MakeKeys, PooledReads
from octavo.engine.cache.record_pages import Place, RecordPages
from octavo.engine.cache.record_reads import RecordReads
from octavo.engine.cache.record_step import RecordStep, RecordStepPlanner
from octavo.engine.cache.records import Records
from octavo.engine.cache.state_step import StateSegment, StateStep, StateStepPlanner

__all__ = [
    "AttentionPages",
    "AttentionStep",
    "AttentionStepPlanner",
    "BoundStates",
    "DevicePages",
    "IndexPages",
    "IndexPart",
    "IndexReads",
    "LatentPages",
    "MakeKeys",
    "OpenPages",
    "PackedRow",
    "PackedSequence",
    "Place",
    "PooledReads",
    "RecordPages",
    "RecordReads",
    "RecordStep",
    "RecordStepPlanner",
    "Records",
    "SharedPages",
    "SingleReads",
    "StateKey",
    "StatePages",
    "StateSegment",
    "StateStep",
    "StateStepPlanner",
    "TileReads",
    "cut_row",
    "most_queries",
    "pack",
]
