"""A real vLLM engine that publishes its events, in a process of its own."""

from multiprocessing.connection import Connection
from typing import Any

from plugin_serving import generate_each, start  # sets vLLM up before it is imported
from vllm import LLM
from vllm.config import KVEventsConfig
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind, get_kv_cache_spec_sliding_window


def serve_and_publish(
    connection: Connection, model: str, pool_mib: int, endpoint: str, prompts: list[tuple[list[int], str | None]]
) -> None:
    """Serves the prompts one after the other, says what the engine knows, and lives until the connection ends."""
    llm = start(
        model,
        None,
        kv_cache_memory_bytes=pool_mib << 20,
        prefix_caching_hash_algo="sha256_cbor",
        kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="zmq", endpoint=endpoint),
    )
    connection.send(report(llm, [serve(llm, *prompt) for prompt in prompts]))
    connection.poll(None)


def serve(llm: LLM, prompt: list[int], salt: str | None) -> tuple[int, int]:
    """Batches of events that were published before, and tokens of the prompt that were resumed."""
    publisher = llm.llm_engine.engine_core.engine_core.scheduler.kv_event_publisher
    publisher._event_queue.join()
    published = int(repr(publisher._seq_gen).strip("count()"))
    _, (resumed,) = generate_each(llm, [prompt], 4, salt=salt)
    return published, resumed


def report(llm: LLM, resumed: list[tuple[int, int]]) -> dict[str, Any]:
    core = llm.llm_engine.engine_core.engine_core
    groups = [group.kv_cache_spec for group in core.scheduler.kv_cache_config.kv_cache_groups]
    keys = list(core.scheduler.kv_cache_manager.block_pool.cached_block_hash_to_block._cache)
    return {
        "resumed": resumed,
        "groups": [
            {
                "kind": get_kv_cache_spec_kind(spec).value,
                "block_size": spec.block_size,
                "sliding_window": get_kv_cache_spec_sliding_window(spec),
            }
            for spec in groups
        ],
        "hash_block_size": core.scheduler.kv_cache_config.hash_block_size,
        "index": [[int.from_bytes(key[-4:], "big"), key[:-4].hex()] for key in keys],
    }
