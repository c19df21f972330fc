"""What a router sees: two engines publish what they cache, and a `GroupView` of each says what it could resume.

    python examples/watch_events.py

The engines serve a tiny model with windows and full attention. After each prompt the views must say of every prompt
what the engines themselves would resume.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic

from octavo import Engine, EngineConfig, GroupView, SamplingParams
from octavo.engine import save_tiny_model
from octavo.events import (
    Delivered,
    PublishedPlan,
    PublisherConfig,
    SourceConfig,
    Subscriber,
    SubscriberConfig,
    external_hashes,
)
from octavo.hashing import PLAIN, BlockHasher

SYSTEM = "You answer in one sentence, and you never guess. " * 3
PROMPTS = {
    "question 1": SYSTEM + "Why is the sky blue?",
    "question 2": SYSTEM + "How far away is the moon?",
    "a long text": "It was the best of times, it was the worst of times. " * 4,
}
STEPS = (("left", "question 1"), ("right", "a long text"), ("left", "question 2"), ("left", "a long text"))


class Router:
    """A view of each engine, kept from its events. It needs no more of an engine than its endpoints and its plan."""

    def __init__(self, endpoints: Mapping[str, SourceConfig], plan: PublishedPlan) -> None:
        self.views = {name: GroupView.of_plan(plan) for name in endpoints}
        self._views_by_endpoint = {source.endpoint: self.views[name] for name, source in endpoints.items()}
        self._subscriber = Subscriber(SubscriberConfig(sources=tuple(endpoints.values()))).start()
        self._hasher = BlockHasher(hash_block_size=plan.hash_block_size)

    def read(self, timeout_s: float) -> None:
        """Takes in the next batch of any engine."""
        item = self._subscriber.poll(timeout_s)
        if item is None:
            return
        view = self._views_by_endpoint[item.endpoint]
        if isinstance(item, Delivered):
            view.apply(item.batch.events)
        else:  # batches are missing: forget the engine's blocks, and know that there may be more than what comes
            view.resync()

    def resumable_tokens(self, prompt: Sequence[int]) -> list[int]:
        """By engine, how many of the prompt's tokens it could resume."""
        hashes = external_hashes(self._hasher.hash_tokens(prompt, PLAIN))
        return [view.longest_resume(hashes, len(prompt)).num_tokens for view in self.views.values()]

    def close(self) -> None:
        self._subscriber.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        save_tiny_model("gemma3", Path(folder, "model"))
        endpoints = {
            name: SourceConfig(endpoint=f"ipc://{folder}/{name}", replay_endpoint=f"ipc://{folder}/{name}-replay")
            for name in ("left", "right")
        }
        engines = {name: make_engine(Path(folder, "model"), source) for name, source in endpoints.items()}
        plan = engines["left"].manager.config
        published = PublishedPlan.of_specs([g.spec for g in plan.groups], hash_block_size=plan.hash_block_size)
        router = Router(endpoints, published)
        print(f"{'tokens that could be resumed:':44}left right")
        for name, title in STEPS:
            serve(engines[name], PROMPTS[title])
            print(f"{name} has served {title}")
            show(router, engines)
        router.close()
        for engine in engines.values():
            engine.close()
    print("The views are right.")


def make_engine(model: Path, source: SourceConfig) -> Engine:
    """An engine whose pool holds little more than one of the prompts."""
    return Engine.from_config(
        EngineConfig(
            model=model,
            device_memory_bytes=448 << 10,
            max_model_len=256,
            max_step_tokens=256,
            kv_events=PublisherConfig(endpoint=source.endpoint, replay_endpoint=source.replay_endpoint),
        )
    )


def serve(engine: Engine, text: str) -> None:
    engine.add_request("request", tokens_of(engine, text), SamplingParams(max_tokens=4, temperature=0.0))
    while engine.has_unfinished:
        engine.step()


def show(router: Router, engines: Mapping[str, Engine]) -> None:
    """Prints what the router believes, once it agrees with the engines."""
    for title, text in PROMPTS.items():
        prompt = tokens_of(engines["left"], text)
        wanted = [resumed_by(engine, prompt) for engine in engines.values()]
        deadline = monotonic() + 20
        while (seen := router.resumable_tokens(prompt)) != wanted:
            router.read(timeout_s=0.1)
            if monotonic() > deadline:
                raise SystemExit(f"{title}: the router believes {seen}, the engines would resume {wanted}")
        print(f"    {f'{title}, {len(prompt)} tokens':38}{seen[0]:6}{seen[1]:6}")


def tokens_of(engine: Engine, text: str) -> list[int]:
    assert engine.tokenizer is not None
    return list(engine.tokenizer.encode(text))


def resumed_by(engine: Engine, prompt: Sequence[int]) -> int:
    """What the engine would resume now. Looking changes nothing."""
    request = engine.manager.begin_request("look", prompt)
    resume = engine.manager.find_resume(request)
    engine.manager.free(request)
    return resume.num_tokens


if __name__ == "__main__":
    main()
