"""A real vLLM engine publishes, Octavo's subscriber reads: what a view learns is what the engine holds and resumes, and
so does a router that is not told of its groups.

Blocks are evicted from the pool of Gemma 3. That of Qwen3-Next is larger: what it cannot resume it computes
again, and vLLM then holds a block twice and tells of a removal when the first copy goes; a view can only believe it.
"""

import random
from pathlib import Path
from typing import Any

import pytest
from forked import forked
from plugin_process import make_model

from octavo.events import (
    BlockRemoved,
    BlockStored,
    Delivered,
    GroupView,
    PublishedGroup,
    PublishedPlan,
    SourceConfig,
    Subscriber,
    SubscriberConfig,
    external_hashes,
)
from octavo.hashing import BlockHasher, RequestIdentity
from octavo.router import EngineAddress, Indexes, LearningFeed, Member, PlanLearner

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(180)]

KINDS = {"gemma3": {"sliding_window": 5, "full_attention": 1}, "qwen3_next": {"mamba": 3, "full_attention": 1}}
POOL_MIB = {"gemma3": 2, "qwen3_next": 64}


def prompts() -> list[tuple[list[int], str | None]]:
    """With their salts. Of the first one's, a group that keeps the last blocks tells nothing."""
    rng = random.Random(0)
    stem = [rng.randrange(4, 512) for _ in range(700)]
    other = [rng.randrange(4, 512) for _ in range(900)]
    alike = [stem[:500], [*stem[:500], *[9] * 20], [*stem[:300], *[8] * 100], other, stem, other[:600], stem[:500]]
    return [(stem[:500], "salt"), (stem[:400], "salt"), *((prompt, None) for prompt in alike)]


@pytest.mark.parametrize("family", KINDS)
def test_a_view_of_vllm_knows_its_groups_and_what_it_resumes(family: str, tmp_path: Path) -> None:
    asked = prompts()
    told, known = serve(make_model(family, tmp_path), POOL_MIB[family], asked)
    batches, router = [item.batch for item in told], LearningRouter()
    groups = [PublishedGroup(**group) for group in known["groups"]]
    view = GroupView.of_plan(PublishedPlan(hash_block_size=known["hash_block_size"], groups=groups))
    hasher = BlockHasher(hash_block_size=known["hash_block_size"], algorithm="sha256_cbor", seed="0")
    applied = 0
    for (prompt, salt), (published, resumed) in zip(asked, known["resumed"], strict=True):
        for item in told[applied:published]:
            view.apply(item.batch.events)
            router.feed.take(item)
        applied, identity = published, RequestIdentity(cache_salt=salt)
        assert router.expects(prompt, identity) == resumed
        hashes = external_hashes(hasher.hash_tokens(prompt, identity))
        assert view.longest_resume(hashes, len(prompt)).num_tokens == resumed
    assert sum(resumed for _, resumed in known["resumed"]) > 0

    for batch in batches[applied:]:
        view.apply(batch.events)
    assert view.num_dropped_events == 0
    index = [(group, external_hashes([bytes.fromhex(digest)])[0]) for group, digest in known["index"]]
    for group_idx in range(len(groups)):
        assert view.hashes(group_idx, "GPU") == {h for group, h in index if group == group_idx}

    events = [event for batch in batches for event in batch.events]
    assert any(isinstance(event, BlockRemoved) for event in events) == (family == "gemma3")
    stored = [event for event in events if isinstance(event, BlockStored)]
    kinds = {event.group_idx: event.kv_cache_spec_kind for event in stored}
    assert {kind: list(kinds.values()).count(kind) for kind in set(kinds.values())} == KINDS[family]


class LearningRouter:
    """What a router knows of an engine that tells no plan."""

    def __init__(self) -> None:
        self.indexes = Indexes()
        learner = PlanLearner(hash_algorithm="sha256_cbor", hash_seeds=("0",))
        member = Member(address=EngineAddress.parse("http://engine:1"), learns_plan=True)
        self.feed = LearningFeed(member, self.indexes, algorithm="sha256_cbor", learner=learner)

    def expects(self, tokens: list[int], identity: RequestIdentity) -> int:
        return self.indexes.read(tokens, identity).prompt.resumes.get("engine:1", 0)


def serve(model: str, pool_mib: int, asked: list[tuple[list[int], str | None]]) -> tuple[list[Delivered], dict]:
    """The batches that an engine published while it served the prompts, and what it knew at the end."""
    source = SourceConfig(endpoint="tcp://127.0.0.1:0", bind=True)
    with (
        Subscriber(SubscriberConfig(sources=(source,))) as subscriber,
        forked(_serve, model, pool_mib, subscriber.endpoints[0], asked) as engine,
    ):
        told: list[Delivered] = []
        while (item := subscriber.poll(timeout_s=5)) is not None or not engine.poll():  # until it has ended
            if item is None:
                continue
            assert isinstance(item, Delivered), item
            assert item.sequence == len(told)
            told.append(item)
        return told, engine.recv()


def _serve(*arguments: Any) -> None:
    import engine_process

    engine_process.serve_and_publish(*arguments)
