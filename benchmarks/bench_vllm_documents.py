"""Of long documents inside vLLM, about which several questions are asked: what is stored, and what comes back.

    bench_vllm_documents.py [--models gemma3,gpt_oss,qwen3_next] [--tokens 4000] [--interval 0] [--lmcache]

Runs in the environment that has vLLM. Each of 8 documents is asked one question a round, in another order each time,
and the device has room for two of them, so what a question goes on from comes from memory or is computed again. After
the first round: how much is stored, of all chunks of all groups and of those that vLLM offered. After each: the share
of the documents' tokens that was resumed. `--interval` is vLLM's --prefix-cache-retention-interval; -1 keeps all.
`--lmcache` adds what LMCache resumes with as much memory (see `lmcache_peer`); its server on CPUs takes no states.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from bench_vllm_conversations import BLOCK_TOKENS, bytes_stored, config_of_tests, gemma3, generate
from lmcache_peer import LMCacheServer, part_from_server, prepare_vllm
from vllm_engines import Engine, kv_transfer, reply

DOCUMENTS, ROUNDS = 8, 3
QUESTION = 100
"""Tokens."""
MEMORY_BYTES = 512 << 20
LMCACHE = "LMCache"
DEVICE = {"gemma3": 24 << 20, "gpt_oss": 8 << 20, "qwen3_next": 26 << 20}
"""Two documents, and what a step computes of a third."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(DEVICE))
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--interval", type=int, default=0)
    parser.add_argument("--lmcache", action="store_true")
    asked = parser.parse_args()
    for family in asked.models.split(","):
        for name in ("Octavo", LMCACHE) if asked.lmcache else ("Octavo",):
            with tempfile.TemporaryDirectory() as folder:
                engine = Engine(__file__, folder, name, family, str(asked.tokens), str(asked.interval))
                print_engine(f"{family:<11} {name:<8}", engine)
                engine.close()


def print_engine(name: str, engine: Engine) -> None:
    stored = engine.read()
    if stored:
        print(
            f"{name} stored {stored['stored'] / 1e6:5.1f} MB,"
            f" {stored['stored'] / stored['all']:6.1%} of all chunks,"
            f" {stored['stored'] / stored['offered']:6.1%} of what vLLM offers"
        )
    print(f"{name} resumed, by round: " + ", ".join(f"{share:.1%}" for share in engine.read()), flush=True)


# ---- in the engine's process ----------------------------------------------------------------------------------------


def serve(folder: str, name: str, family: str, num_tokens: int, interval: int) -> None:
    if name == LMCACHE:
        prepare_vllm()
        with LMCacheServer(MEMORY_BYTES, BLOCK_TOKENS) as server:
            llm = make_engine(folder, family, num_tokens, interval, server.kv_transfer())
            reply(shares_resumed(llm, num_tokens, lambda: reply(None)))
            part_from_server(llm)
        return
    llm = make_engine(folder, family, num_tokens, interval, kv_transfer(memory=MEMORY_BYTES))
    manager = llm.llm_engine.engine_core.engine_core.scheduler.connector.connector_scheduler.manager
    groups = manager._groups  # noqa: SLF001
    offered = note_offered(manager, groups)

    def tell_stored() -> None:
        in_one = sum(group.chunk_bytes * ((num_tokens + QUESTION) // group.tokens_per_chunk) for group in groups)
        reply({"stored": bytes_stored(llm), "offered": sum(offered.values()), "all": in_one * DOCUMENTS})

    reply(shares_resumed(llm, num_tokens, tell_stored))
    manager.shutdown()


def shares_resumed(llm: Any, num_tokens: int, end_first_round: Callable[[], None]) -> list[float]:
    """By round."""
    source = random.Random(0)
    documents = [[source.randrange(4, 512) for _ in range(num_tokens)] for _ in range(DOCUMENTS)]
    shares = []
    for number in range(ROUNDS):
        resumed = 0
        for document in source.sample(documents, DOCUMENTS):
            _, cached = generate(llm, document + [source.randrange(4, 512) for _ in range(QUESTION)])
            resumed += cached
        shares.append(resumed / (DOCUMENTS * num_tokens))
        if number == 0:
            generate(llm, documents[0][:5])  # vLLM stores in its next step
            end_first_round()
    return shares


def make_engine(folder: str, family: str, num_tokens: int, interval: int, transfer: dict[str, Any]) -> Any:
    import torch
    import transformers
    from vllm import LLM

    torch.manual_seed(0)
    config = gemma3() if family == "gemma3" else config_of_tests(family)
    config.max_position_embeddings = 2 * num_tokens
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    return LLM(
        model=folder,
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="bfloat16",
        max_model_len=num_tokens + 256,
        max_num_seqs=4,
        max_num_batched_tokens=2048,
        kv_cache_memory_bytes=DEVICE[family],
        enable_prefix_caching=True,
        prefix_cache_retention_interval=None if interval < 0 else interval,
        disable_log_stats=False,
        seed=0,
        kv_transfer_config=transfer,
    )


def note_offered(manager: Any, groups: Any) -> dict[bytes, int]:
    """The bytes of each chunk that vLLM offers from now on."""
    from octavo.chunks import get_offload_group_idx

    offered: dict[bytes, int] = {}
    take = manager.prepare_store

    def prepare_store(keys: Any, context: Any) -> Any:
        offered.update({key: groups[get_offload_group_idx(key)].chunk_bytes for key in keys})
        return take(keys, context)

    manager.prepare_store = prepare_store
    return offered


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        serve(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
    else:
        main()
