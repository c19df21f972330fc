"""`sha256_cbor` beside the real vLLM: its `Request` and its hasher, over every source of extra keys that it knows."""

import warnings

import numpy as np
import pytest
from hashed_requests import vllm_request
from hypothesis import HealthCheck, given, settings, strategies as st

from octavo.events import PublishedGroup, PublishedPlan
from octavo.hashing import PLAIN, BlockHasher, MultiModalItem, PromptEmbeds, RequestIdentity, hashes_for_block_size
from octavo.router import Indexes

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own
    import torch
    from vllm.utils.hashing import sha256_cbor
    from vllm.v1.core import kv_cache_utils

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

EDGES = [0, 1, 23, 24, 255, 256, 65535, 65536, 2**31 - 1]
IMAGES = (
    MultiModalItem(identifier="cat", offset=3, length=30),  # over several blocks, from within one
    MultiModalItem(identifier="dog", offset=33, length=3),  # within a block, next to the first
    MultiModalItem(identifier="cat", offset=40, length=8),  # ends where a block ends
    MultiModalItem(identifier="cow", offset=48, length=50),
)
EMBEDS = torch.arange(40 * 6, dtype=torch.float32).reshape(40, 6)


@pytest.fixture(params=[None, "", "42"])
def seed(request, monkeypatch):
    if request.param is None:
        monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    else:
        monkeypatch.setenv("PYTHONHASHSEED", request.param)
    kv_cache_utils.init_none_hash(sha256_cbor)
    return request.param


IDENTITIES = {
    "plain": PLAIN,
    "lora": RequestIdentity(lora_name="tuned", lora_path="/loras/tuned"),
    "salt": RequestIdentity(cache_salt="tenant-1"),
    "images": RequestIdentity(multimodal=IMAGES),
    "everything": RequestIdentity(lora_name="tuned", lora_path="/loras/tuned", cache_salt="grüße", multimodal=IMAGES),
}


@pytest.mark.parametrize("block_size", [1, 4, 16, 24])
@pytest.mark.parametrize("name", IDENTITIES)
def test_prompt_and_answer(seed, name, block_size):
    identity = IDENTITIES[name]
    tokens = np.random.default_rng(block_size).choice(EDGES, 100).tolist()
    request = vllm_request(tokens, identity, block_size)
    hasher = BlockHasher(hash_block_size=block_size, algorithm="sha256_cbor", seed=seed)
    assert hasher.root == kv_cache_utils.NONE_HASH
    hashes = hasher.hash_tokens(tokens, identity)
    assert hashes == request.block_hashes
    for token in range(50):
        request.append_output_token_ids(token)
        tokens.append(token)
        hasher.extend(hashes, tokens, identity)
        assert hashes == request.block_hashes


@pytest.mark.parametrize("name", IDENTITIES)
def test_extra_keys(seed, name):
    identity = IDENTITIES[name]
    request = vllm_request([0] * 128, identity, 16)
    mm_idx = 0
    for k, keys in enumerate(identity.extra_keys_of_blocks(range(8), 16)):
        theirs, mm_idx = kv_cache_utils.generate_block_hash_extra_keys(request, 16 * k, 16 * (k + 1), mm_idx)
        assert (keys or None) == theirs


def test_prompt_embeds(seed):
    data = EMBEDS.numpy().tobytes()
    identity = RequestIdentity(
        cache_salt="tenant-1", prompt_embeds=PromptEmbeds(data=data, bytes_per_token=len(data) // len(EMBEDS))
    )
    request = vllm_request(None, identity, 16, prompt_embeds=EMBEDS)
    hasher = BlockHasher(hash_block_size=16, algorithm="sha256_cbor", seed=seed)
    tokens = [0] * len(EMBEDS)
    hashes = hasher.hash_tokens(tokens, identity)
    assert hashes == request.block_hashes
    request.append_output_token_ids(list(range(60)))
    hasher.extend(hashes, [*tokens, *range(60)], identity)
    assert hashes == request.block_hashes
    assert len(hashes) == 6


def test_larger_blocks(seed):
    request = vllm_request(list(range(128)), PLAIN, 16)
    larger = kv_cache_utils.BlockHashListWithBlockSize(request.block_hashes, 16, 48)
    assert hashes_for_block_size(request.block_hashes, 16, 48) == list(larger)


TEXTS = st.sampled_from(["a", "b", "grüße", "💾"])
SALTS = st.none() | TEXTS
MEDIA = st.lists(
    st.builds(MultiModalItem, identifier=TEXTS, offset=st.integers(0, 90), length=st.integers(1, 40)), max_size=3
).map(lambda items: tuple(sorted(items, key=lambda item: item.offset)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the seed is the same for all examples
@given(
    block_size=st.sampled_from([1, 3, 16, 24]),
    tokens=st.lists(st.sampled_from(EDGES), max_size=100),
    identity=st.builds(RequestIdentity, cache_salt=SALTS)
    | st.builds(RequestIdentity, lora_name=TEXTS, lora_path=TEXTS, cache_salt=SALTS, multimodal=MEDIA),
)
def test_a_router_hashes_what_vllms_events_tell(seed, block_size, tokens, identity):
    plan = PublishedPlan(
        hash_block_size=block_size, groups=[PublishedGroup(kind="full_attention", block_size=block_size)]
    )
    indexes = Indexes()
    index = indexes.find(plan, algorithm="sha256_cbor", seed="vllm-none-hash" if seed is None else seed)
    told = vllm_request(tokens, identity, block_size).block_hashes
    assert indexes.read(tokens, identity).hashes[index] == list(map(kv_cache_utils.maybe_convert_block_hash, told))
