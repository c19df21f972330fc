"""A real vLLM engine in a process of its own: serves prompts, publishes its events, and prints what it knows as JSON.

    engine_process.py MODEL POOL_MIB ENDPOINT

MODEL is a family of `vllm_models`, made with random weights. The first line of stdin is a list of prompts, which are
served one after the other; the process ends when stdin does.
"""

import json
import sys
import tempfile
from pathlib import Path

import vllm_environment  # noqa: F401 - before vLLM
from vllm import LLM, SamplingParams
from vllm.config import KVEventsConfig
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind, get_kv_cache_spec_sliding_window
from vllm_models import make_model


def main() -> None:
    family, pool_mib, endpoint = sys.argv[1:]
    prompts = json.loads(sys.stdin.readline())
    with tempfile.TemporaryDirectory() as folder:
        make_model(family, Path(folder))
        llm = LLM(
            model=folder,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="bfloat16",
            max_model_len=1024,
            max_num_seqs=4,
            max_num_batched_tokens=1024,
            kv_cache_memory_bytes=int(pool_mib) << 20,
            enable_prefix_caching=True,
            prefix_caching_hash_algo="sha256_cbor",
            seed=0,
            kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="zmq", endpoint=endpoint),
        )
        report(llm, [serve(llm, prompt) for prompt in prompts])


def serve(llm: LLM, prompt: list[int]) -> tuple[int, int]:
    """Batches of events that were published before, and tokens of the prompt that were resumed."""
    publisher = llm.llm_engine.engine_core.engine_core.scheduler.kv_event_publisher
    publisher._event_queue.join()
    published = int(repr(publisher._seq_gen).strip("count()"))
    sampling = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, detokenize=False)
    (output,) = llm.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)
    return published, output.num_cached_tokens or 0


def report(llm: LLM, resumed: list[tuple[int, int]]) -> None:
    core = llm.llm_engine.engine_core.engine_core
    groups = [group.kv_cache_spec for group in core.scheduler.kv_cache_config.kv_cache_groups]
    keys = list(core.scheduler.kv_cache_manager.block_pool.cached_block_hash_to_block._cache)
    known = {
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
    print("KNOWN " + json.dumps(known), flush=True)
    sys.stdin.read()  # until the reader has what it wants


if __name__ == "__main__":
    main()
