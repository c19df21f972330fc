"""A fleet for the benchmark of routers: real block managers in small pools, and conversations that share prompts."""

import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from octavo.blocks import KVCacheManager, ResumePlan
from octavo.events import AnyEvent, EventSource, KVEventBatch, PublishedPlan
from octavo.hashing import PLAIN
from octavo.planning import plan_kv_cache
from octavo.specs import CacheDType, FullAttentionSpec, KVCacheSpec, MambaSpec, RequestLimits, SlidingWindowSpec

BLOCK_SIZE = 16
MOST_CHATS = 40
_HEADS: dict[str, Any] = {"num_kv_heads": 2, "head_size": 64}
_FULL = FullAttentionSpec(block_size=BLOCK_SIZE, **_HEADS)
_WINDOW = SlidingWindowSpec(block_size=BLOCK_SIZE, sliding_window=256, **_HEADS)
_STATE = MambaSpec(block_size=BLOCK_SIZE, shapes=((16, 128, 128),), dtypes=(CacheDType.FLOAT32,))
FAMILIES: dict[str, list[KVCacheSpec]] = {
    "full (Llama)": [_FULL] * 6,
    "window + full (Gemma 3)": [_WINDOW] * 5 + [_FULL],
    "state + full (Qwen3-Next)": [_STATE] * 3 + [_FULL],
    "state + window + full": [_STATE, _WINDOW, _STATE, _FULL],
}


class Engine:
    """A block manager that serves one prompt after the other, and says what it holds."""

    def __init__(self, family: str, *, memory_bytes: int) -> None:
        layers = {f"layers.{i}": spec for i, spec in enumerate(FAMILIES[family])}
        limits = RequestLimits(max_model_len=4096, max_step_tokens=2048)
        config = plan_kv_cache(layers, memory_bytes=memory_bytes, limits=limits, hash_block_size=BLOCK_SIZE)
        specs = [group.spec for group in config.groups]
        self.manager = KVCacheManager(config, enable_events=True)
        self.plan = PublishedPlan.of_specs(specs, hash_block_size=BLOCK_SIZE, clears_all_media=True)
        self.computed_tokens = 0
        self._source = EventSource(specs, medium="GPU", hash_block_size=BLOCK_SIZE)
        self._num_requests = 0

    def serve(self, tokens: list[int]) -> int:
        """Computes a prompt, and returns how many of its tokens were resumed."""
        self._num_requests += 1
        request = self.manager.begin_request(f"r{self._num_requests}", np.array(tokens, dtype=np.int32), PLAIN)
        plan: ResumePlan | None = self.manager.find_resume(request)
        assert plan is not None
        resumed = done = plan.num_tokens
        while done < len(tokens):
            end = self.manager.cut_prefill(request, min(len(tokens), done + 2048), plan)
            if self.manager.allocate(request, end, resume=plan) is None:
                raise SystemExit("the pool is too small for one request: give --memory more")
            plan, done = None, end
            self.manager.commit(request, end)
        self.manager.free(request)
        self.computed_tokens += len(tokens) - resumed
        return resumed

    def take_batch(self) -> KVEventBatch:
        """What it did since the last call, for routers."""
        events: list[AnyEvent] = self._source.messages(self.manager.take_changes())
        return KVEventBatch(ts=time.time(), events=events)


def conversations(seed: int, *, num_requests: int) -> Iterator[list[int]]:
    """Prompts of chats that go on, end and fork, some of them with a shared system prompt."""
    rng = random.Random(seed)

    def new(count: int) -> list[int]:
        return [rng.randrange(50_000) for _ in range(count)]

    systems = [new(rng.randrange(100, 600)) for _ in range(4)]
    chats: list[list[int]] = []
    for _ in range(num_requests):
        if len(chats) < MOST_CHATS or rng.random() < 0.15:
            chats.append([*rng.choice(systems), *new(rng.randrange(20, 400))])
            chat = chats[-1]
        else:
            chat = rng.choice(chats[-MOST_CHATS:])
            if rng.random() < 0.1:  # an earlier message is edited
                chat = chat[: rng.randrange(len(chat) // 2, len(chat))]
                chats.append(chat)
            chat.extend(new(rng.randrange(30, 300)))
        if len(chat) > 3500:
            chats.remove(chat)
        yield list(chat)
