"""Makes the parts of an engine from its `EngineConfig`: model, plan, manager, runner, tokenizer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from octavo.blocks import KVCacheManager
from octavo.chunks import Departures
from octavo.engine.checks import check_context
from octavo.engine.config import EngineConfig
from octavo.engine.free_device_memory import free_bytes_of
from octavo.engine.models import CacheGeometry, CausalModel, find_eos_token_ids, load_model, read_about
from octavo.engine.runner import ModelRunner
from octavo.engine.scheduler import SchedulerLimits
from octavo.engine.tokenizer import FastTokenizer, load_tokenizer
from octavo.engine.torch_dtypes import parse_dtype
from octavo.errors import NotEnoughMemoryError
from octavo.hashing import BlockHasher
from octavo.host import tell_of_lack
from octavo.planning import KVCacheConfig, plan_kv_cache
from octavo.recording import RequestRecorder
from octavo.specs import RequestLimits
from octavo.units import format_bytes

_LEAST_STEP_TOKENS = {"cuda": 1024}
"""By device. An H200 took 199 ms for 2,024 tokens of a small model in nine steps, and 80 ms in three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """The parts of an engine."""

    runner: ModelRunner
    manager: KVCacheManager
    limits: SchedulerLimits
    vocab_size: int
    tokenizer: FastTokenizer | None
    eos_token_ids: frozenset[int]
    recorder: RequestRecorder | None


def build_parts(config: EngineConfig) -> EngineParts:
    """Loads the model, plans its cache and allocates the pool."""
    read_about(config.model, config.device)  # first: the tokenizer's loader reads the config too, and would be blamed
    tokenizer = load_tokenizer(config.model)
    eos_token_ids = find_eos_token_ids(config.model)
    model = load_model(config.model, None if config.dtype == "auto" else parse_dtype(config.dtype), config.device)
    plan = plan_for(model, config)
    hasher = BlockHasher(hash_block_size=plan.hash_block_size, algorithm=config.hash_algorithm, seed=config.hash_seed)
    if model.device.type == "cpu":
        tell_of_lack(plan.num_sheets * plan.sheet_bytes, "the pool", "device_memory (--device-memory)")
    with _refusing_too_large_a_pool(plan):
        runner = ModelRunner(model, plan)  # first: the tables of a pool that cannot be had are too large too
        manager = KVCacheManager(
            plan,
            hasher=hasher,
            enable_prefix_caching=config.enable_prefix_caching,
            enable_events=config.kv_events is not None,
        )
    if config.enable_prefix_caching:
        manager.pool.departures = Departures()
    return EngineParts(
        runner=runner,
        manager=manager,
        limits=SchedulerLimits(
            max_step_tokens=config.max_step_tokens, max_num_seqs=config.max_num_seqs, max_waiting=config.max_waiting
        ),
        vocab_size=model.vocab_size,
        tokenizer=tokenizer,
        eos_token_ids=eos_token_ids,
        recorder=_make_recorder(config, plan),
    )


def _make_recorder(config: EngineConfig, plan: KVCacheConfig) -> RequestRecorder | None:
    if config.record is None:
        return None
    return RequestRecorder(config.record, block_tokens=plan.hash_block_size, most_bytes=config.record_bytes)


@contextmanager
def _refusing_too_large_a_pool(plan: KVCacheConfig) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise NotEnoughMemoryError(
            f"the system did not give {format_bytes(plan.num_sheets * plan.sheet_bytes)} of device memory for the pool "
            f"({str(error) or 'it has less'}): lower device_memory (--device-memory)"
        ) from error


def plan_for(model: CausalModel, config: EngineConfig) -> KVCacheConfig:
    """The memory plan. A context that was asked for must fit; the model's own may be shortened to fit."""
    check_context(config, model.max_model_len)
    geometry = CacheGeometry(attention_block_size=config.attention_block_size, state_block_size=config.state_block_size)
    return plan_kv_cache(
        model.kv_cache_specs(geometry),
        memory_bytes=config.pool_bytes(free_bytes_of(model.device)),
        limits=RequestLimits(
            max_model_len=config.max_model_len or model.max_model_len,
            max_step_tokens=config.max_step_tokens,
            least_step_tokens=_LEAST_STEP_TOKENS.get(model.device.type, 1),
        ),
        checkpoint_interval_tokens=config.checkpoint_interval_tokens,
        shorten_context=config.max_model_len is None,
    )
