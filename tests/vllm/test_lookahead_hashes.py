"""Hashes that cover the tokens after a block, beside the real vLLM 0.33, which makes them for a draft model."""

import inspect
import random
import warnings

import pytest
from hashed_requests import vllm_request

from octavo.events import decode_batch, external_hashes
from octavo.hashing import PLAIN, BlockHasher, MultiModalItem, RequestIdentity
from octavo.router import PlanLearner

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own
    import msgspec
    from vllm.distributed.kv_events import BlockStored, KVEventBatch
    from vllm.utils.hashing import sha256_cbor
    from vllm.v1.core import kv_cache_utils

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.every_vllm,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        "num_hash_lookahead_tokens" not in inspect.signature(kv_cache_utils.get_request_block_hasher).parameters,
        reason="this vLLM hashes blocks alone",
    ),
]
IMAGES = (
    MultiModalItem(identifier="cat", offset=3, length=30),
    MultiModalItem(identifier="dog", offset=33, length=3),
    MultiModalItem(identifier="cow", offset=48, length=50),
)
IDENTITIES = {
    "plain": PLAIN,
    "lora": RequestIdentity(lora_name="tuned", lora_path="/loras/tuned"),
    "salt": RequestIdentity(cache_salt="tenant-1"),
    "images": RequestIdentity(multimodal=IMAGES),
    "everything": RequestIdentity(lora_name="tuned", lora_path="/loras/tuned", cache_salt="s", multimodal=IMAGES),
}
RNG = random.Random(0)
TOKENS = [RNG.randrange(150_000) for _ in range(100)]


@pytest.fixture(autouse=True)
def seed(monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    kv_cache_utils.init_none_hash(sha256_cbor)


@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize("block_size", [4, 16])
@pytest.mark.parametrize("name", IDENTITIES)
def test_prompt_and_answer(name, block_size, ahead):
    identity = IDENTITIES[name]
    request = vllm_request(TOKENS[:70], identity, block_size, ahead)
    hasher = BlockHasher(hash_block_size=block_size, algorithm="sha256_cbor", seed="0", lookahead_tokens=ahead)
    hashes = hasher.hash_tokens(TOKENS[:70], identity)
    assert hashes == request.block_hashes
    for token in TOKENS[70:]:
        request.append_output_token_ids(token)
    hasher.extend(hashes, TOKENS, identity)
    assert hashes == request.block_hashes
    assert len(hashes) == (len(TOKENS) - ahead) // block_size


def test_a_router_learns_them_from_events():
    request = vllm_request(TOKENS, PLAIN, 16, 1)
    event = BlockStored(
        block_hashes=[kv_cache_utils.maybe_convert_block_hash(one) for one in request.block_hashes[:4]],
        parent_block_hash=None,
        token_ids=TOKENS[:64],
        block_size=16,
        lora_id=None,
        medium="GPU",
        lora_name=None,
        group_idx=0,
        kv_cache_spec_kind="full_attention",
        lookahead_token_ids=[[TOKENS[end]] for end in (16, 32, 48, 64)],
    )
    batch = decode_batch(msgspec.msgpack.encode(KVEventBatch(ts=0.0, events=[event])))
    learner = PlanLearner(hash_algorithm="sha256_cbor", hash_seeds=["0"])
    assert learner.take(batch.events)
    learned = learner.plan
    assert (learned.plan.hash_block_size, learned.lookahead_tokens) == (16, 1)
    hasher = BlockHasher(hash_block_size=16, algorithm="sha256_cbor", seed="0", lookahead_tokens=1)
    assert external_hashes(hasher.hash_tokens(TOKENS, PLAIN))[:4] == batch.events[0].block_hashes
