"""Two engines of a hybrid that publish what they hold: one has lost its recurrent state, the other one has less."""

from octavo.events import BlockStored, KVEventBatch, PublisherConfig, ZmqPublisher, external_hashes
from octavo.hashing import PLAIN, BlockHasher

BLOCK_SIZE = 16
TOKENS = list(range(1000, 1000 + 64 * BLOCK_SIZE))


def hashes_of(tokens):
    hasher = BlockHasher(hash_block_size=BLOCK_SIZE, algorithm="sha256_cbor", seed="0")
    return external_hashes(hasher.hash_tokens(tokens, PLAIN))


HASHES = hashes_of(TOKENS)


def stored(hashes, group, kind, *, medium="GPU", ownership=None):
    return BlockStored(
        block_hashes=hashes,
        parent_block_hash=None,
        token_ids=TOKENS,
        block_size=BLOCK_SIZE,
        lora_id=None,
        medium=medium,
        lora_name=None,
        group_idx=group,
        kv_cache_spec_kind=kind,
        ownership=ownership,
    )


WITHOUT_STATE = [stored(HASHES, 0, "full_attention"), stored([HASHES[0]], 1, "mamba")]
"""64 blocks of attention, and a checkpoint at 16 tokens."""
WITH_STATE = [
    stored(HASHES[:32], 0, "full_attention"),
    stored([HASHES[15]], 1, "mamba"),
    stored([HASHES[31]], 1, "mamba", medium="CPU"),
]
"""32 blocks; a checkpoint at 256 tokens on the device, and one at 512 in memory."""
SHORTEST = [stored(HASHES[:1], 0, "full_attention"), stored(HASHES[:1], 1, "mamba")]
"""16 tokens."""


def in_store(hashes):
    """768 tokens in a store that other engines may use."""
    place = {"medium": "STORAGE", "ownership": "redis"}
    return [stored(hashes[:48], 0, "full_attention", **place), stored([hashes[47]], 1, "mamba", **place)]


class Publishing:
    """An engine's publisher on free ports, which has told one batch."""

    def __init__(self, events, *, endpoint="tcp://127.0.0.1:0", replay="tcp://127.0.0.1:0", rank=0):
        config = PublisherConfig(endpoint=endpoint, replay_endpoint=replay, data_parallel_rank=rank)
        self._publisher = ZmqPublisher(config).start()
        self.events, self.replay = self._publisher.endpoints
        self._publisher.publish(KVEventBatch(ts=1.0, events=events, data_parallel_rank=rank))

    def worker(self, worker_id, **others):
        return {
            "worker_id": worker_id,
            "model_name": "m",
            "endpoint": f"http://10.0.0.{worker_id}",
            "block_size": BLOCK_SIZE,
            "kv_events_endpoints": {0: self.events},
            "replay_endpoint": self.replay,
            **others,
        }

    def publish(self, events, **others):
        self._publisher.publish(KVEventBatch(ts=1.0, events=events, **others))

    def close(self):
        self._publisher.close()
