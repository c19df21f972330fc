"""Event batches that a peer could send, for Hypothesis."""

from hypothesis import strategies as st

from octavo.events import AllBlocksCleared, AnyEvent, BlockRemoved, BlockStored, ExternalHash, KVEventBatch

_naturals = st.integers(0, 2**63 - 1)
_hashes: st.SearchStrategy[ExternalHash] = st.integers(0, 2**64 - 1) | st.binary(min_size=32, max_size=32)
_names = st.none() | st.sampled_from(["GPU", "CPU", "STORAGE", ""]) | st.text(max_size=40)
_groups = st.none() | st.integers(0, 8)
_scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=8) | st.binary(max_size=8)
_keys = _scalars | st.lists(_scalars, max_size=3).map(tuple)
_extra_keys = st.lists(st.none() | st.lists(_keys, max_size=3).map(tuple), max_size=4)

_stored = st.builds(
    BlockStored,
    block_hashes=st.lists(_hashes, max_size=5),
    parent_block_hash=st.none() | _hashes,
    token_ids=st.lists(st.integers(0, 300_000), max_size=20),
    block_size=_naturals,
    lora_id=st.none() | _naturals,
    medium=_names,
    lora_name=_names,
    extra_keys=st.none() | _extra_keys,
    group_idx=_groups,
    kv_cache_spec_kind=_names,
    kv_cache_spec_sliding_window=st.none() | _naturals,
    locality=_names,
    ownership=_names,
    session_id=_names,
)
_removed = st.builds(
    BlockRemoved,
    block_hashes=st.lists(_hashes, max_size=5),
    medium=_names,
    group_idx=_groups,
    locality=_names,
    ownership=_names,
)


def events() -> st.SearchStrategy[AnyEvent]:
    """One event of any type, with any of its fields."""
    return st.one_of(_stored, _removed, st.builds(AllBlocksCleared))


def batches() -> st.SearchStrategy[KVEventBatch]:
    """A step's events, of an engine with or without data parallelism."""
    return st.builds(
        KVEventBatch,
        ts=st.floats(allow_nan=False, allow_infinity=False),
        events=st.lists(events(), max_size=4),
        data_parallel_rank=st.none() | st.integers(0, 64),
    )
