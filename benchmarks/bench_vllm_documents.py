"""Of long documents inside vLLM, about which several questions are asked: what is stored, and what comes back.

    bench_vllm_documents.py [--models gemma3,gpt_oss,qwen3_next] [--tokens 4000] [--interval 0]

Runs in the environment that has vLLM. Each of 8 documents is asked one question a round, in another order each time,
and the device has room for two of them, so what a question goes on from comes from memory or is computed again. After
the first round: how much is stored, of all chunks of all groups and of those that vLLM offered. After each: the share
of the documents' tokens that was resumed. `--interval` is vLLM's --prefix-cache-retention-interval; -1 keeps all.
"""

import argparse
import random
import sys
import tempfile
from typing import Any

from bench_vllm_conversations import bytes_stored, config_of_tests, gemma3, generate
from vllm_engines import Engine, kv_transfer, reply

DOCUMENTS, ROUNDS = 8, 3
QUESTION = 100
"""Tokens."""
DEVICE = {"gemma3": 24 << 20, "gpt_oss": 8 << 20, "qwen3_next": 26 << 20}
"""Two documents, and what a step computes of a third."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(DEVICE))
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--interval", type=int, default=0)
    asked = parser.parse_args()
    for family in asked.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            engine = Engine(__file__, folder, family, str(asked.tokens), str(asked.interval))
            stored = engine.read()
            print(
                f"{family:<11} stored {stored['stored'] / 1e6:5.1f} MB,"
                f" {stored['stored'] / stored['all']:6.1%} of all chunks,"
                f" {stored['stored'] / stored['offered']:6.1%} of what vLLM offers"
            )
            print(f"{'':<11} resumed, by round: " + ", ".join(f"{share:.1%}" for share in engine.read()), flush=True)
            engine.close()


# ---- in the engine's process ----------------------------------------------------------------------------------------


def serve(folder: str, family: str, num_tokens: int, interval: int) -> None:
    llm = make_engine(folder, family, num_tokens, interval)
    manager = llm.llm_engine.engine_core.engine_core.scheduler.connector.connector_scheduler.manager
    groups = manager._groups  # noqa: SLF001
    offered = note_offered(manager, groups)
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
            in_one = sum(group.chunk_bytes * ((num_tokens + QUESTION) // group.tokens_per_chunk) for group in groups)
            reply({"stored": bytes_stored(llm), "offered": sum(offered.values()), "all": in_one * DOCUMENTS})
    reply(shares)
    manager.shutdown()


def make_engine(folder: str, family: str, num_tokens: int, interval: int) -> Any:
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
        kv_transfer_config=kv_transfer(memory="512MiB"),
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
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
