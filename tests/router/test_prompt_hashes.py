"""The router hashes a prompt as its engine does, whatever tells prompts apart: both resume the same tokens."""

import asyncio
import json

import httpx
from hypothesis import given, strategies as st

from octavo.blocks import KVCacheManager
from octavo.events import EventSource, KVEventBatch, PublishedPlan, decode_batch, encode_batch, external_hashes
from octavo.hashing import HASH_ALGORITHMS, BlockHasher, MultiModalItem, RequestIdentity
from octavo.http import EngineFacts
from octavo.planning import plan_kv_cache
from octavo.router import EngineAddress, Fleet, PromptReader
from octavo.router.selection.requests import Question, read
from octavo.specs import FullAttentionSpec, RequestLimits, SlidingWindowSpec

RANKS = 2
CLIENT = httpx.AsyncClient()
TEXTS = st.sampled_from(["a", "b", "grüße", "💾"])
SALTS = st.none() | TEXTS
MEDIA = st.lists(
    st.builds(MultiModalItem, identifier=TEXTS, offset=st.integers(0, 100), length=st.integers(1, 40)), max_size=3
).map(lambda items: tuple(sorted(items, key=lambda item: item.offset)))
IDENTITIES = st.builds(RequestIdentity, cache_salt=SALTS, multimodal=MEDIA) | st.builds(
    RequestIdentity, lora_name=TEXTS, lora_path=st.just("") | TEXTS, cache_salt=SALTS, multimodal=MEDIA
)
TOKENS = st.lists(st.sampled_from([0, 1, 23, 24, 65536, 2**31 - 1]), min_size=64, max_size=160)


class Rank:
    """An engine's block manager, and what it tells of its blocks."""

    def __init__(self, block_size, hash_block_size, hasher):
        heads = {"block_size": block_size, "num_kv_heads": 1, "head_size": 8}
        layers = {"full": FullAttentionSpec(**heads), "window": SlidingWindowSpec(sliding_window=24, **heads)}
        limits = RequestLimits(max_model_len=192, max_step_tokens=192)
        config = plan_kv_cache(layers, memory_bytes=1 << 19, limits=limits, hash_block_size=hash_block_size)
        specs = [group.spec for group in config.groups]
        self._manager = KVCacheManager(config, hasher=hasher, enable_events=True)
        self._source = EventSource(specs, medium="GPU", hash_block_size=hash_block_size)
        self.plan = PublishedPlan.of_specs(specs, hash_block_size=hash_block_size, clears_all_media=True)

    def serve(self, tokens, identity):
        request = self._manager.begin_request("served", tokens, identity)
        assert self._manager.allocate(request, len(tokens)) is not None
        self._manager.commit(request, len(tokens))
        self._manager.free(request)
        events = self._source.messages(self._manager.take_changes())
        return decode_batch(encode_batch(KVEventBatch(ts=0.0, events=events))).events

    def ask(self, tokens, identity):
        """How many tokens it would resume, and the prompt's hashes as its events tell them."""
        request = self._manager.begin_request("asked", tokens, identity)
        resumed, hashes = self._manager.find_resume(request).num_tokens, external_hashes(request.hashed)
        self._manager.free(request)
        return resumed, hashes


class Routed:
    """Ranks of one engine, and a router that has read their events."""

    def __init__(self, data):
        ratio, hash_block_size = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([1, 3, 4, 16]))
        algorithm, seed = data.draw(st.sampled_from(sorted(HASH_ALGORITHMS))), data.draw(st.just("") | TEXTS)
        hasher = BlockHasher(hash_block_size=hash_block_size, algorithm=algorithm, seed=seed)
        self.ranks = {str(rank): Rank(ratio * hash_block_size, hash_block_size, hasher) for rank in range(RANKS)}
        self.fleet = Fleet([EngineAddress.parse("http://127.0.0.1:9")], CLIENT)
        self.index = self.fleet._indexes.find(self.ranks["0"].plan, algorithm=algorithm, seed=seed)
        for rank in self.ranks:
            self.index.add_engine(rank)

    def serve(self, data, tokens, identity):
        rank = data.draw(st.sampled_from(sorted(self.ranks)))
        self.index.apply(rank, self.ranks[rank].serve(tokens, identity))

    def check(self, prompt, tokens, identity):
        """The router's answer is that of all ranks."""
        answers = {name: rank.ask(tokens, identity) for name, rank in self.ranks.items()}
        for _, hashes in answers.values():
            assert prompt.hashes[self.index] == hashes
        assert prompt.prompt.resumes == {name: resumed for name, (resumed, _) in answers.items() if resumed}

    def read(self, body, tenant=None):
        return asyncio.run(PromptReader(self.fleet).read(json.dumps(body).encode(), {}, tenant))


@given(data=st.data(), tokens=TOKENS, served=IDENTITIES, asked=IDENTITIES)
def test_of_any_identity(data, tokens, served, asked):
    routed = Routed(data)
    routed.serve(data, tokens, served)
    for identity in (served, asked):
        routed.check(routed.fleet.read(tokens, identity), tokens, identity)


@given(
    data=st.data(),
    tokens=TOKENS,
    path=st.just("") | TEXTS,
    salts=st.tuples(SALTS, SALTS),
    is_tuned=st.booleans(),
    is_vllm=st.booleans(),
)
def test_of_a_request_to_generate(data, tokens, path, salts, is_tuned, is_vllm):
    """A tenant's name is the salt, and replaces what the body says, but not where no engine knows tenants."""
    routed = Routed(data)
    tenant, salt = salts
    (member,) = routed.fleet.members.values()
    adapters = {"tuned": path}
    member.facts = EngineFacts(model="m", max_model_len=192, hash_algorithm="", hash_seed="", adapters=adapters)
    member.learns_plan = is_vllm
    lora = {"lora_name": "tuned", "lora_path": path} if is_tuned else {}
    identity = RequestIdentity(cache_salt=salt if is_vllm else tenant or salt, **lora)
    routed.serve(data, tokens, identity)
    body = {"model": "tuned" if is_tuned else "m", "prompt": tokens, "cache_salt": salt}
    routed.check(routed.read(body, tenant), tokens, identity)


@given(data=st.data(), tokens=TOKENS, path=st.just("") | TEXTS, salt=SALTS, name=st.none() | TEXTS)
def test_of_a_question_to_select(data, tokens, path, salt, name):
    routed = Routed(data)
    identity = RequestIdentity(cache_salt=salt, **({} if name is None else {"lora_name": name, "lora_path": path}))
    routed.serve(data, tokens, identity)
    asked = {"token_ids": tokens, "cache_salt": salt, "lora_name": name, "lora_path": path}
    question = read(asked, Question)
    routed.check(routed.fleet.read(question.token_ids, question.identity), tokens, identity)
