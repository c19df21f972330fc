"""What an engine with tiers publishes: each medium by its name, and in the end what each one holds."""

from octavo.blocks import KVCacheManager
from octavo.engine.building import build_parts
from octavo.engine.config import EngineConfig
from octavo.engine.engine import Engine
from octavo.engine.event_feed import EventFeed
from octavo.engine.offloading import offload_maker
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.tiny_models import save_tiny_model
from octavo.events import (
    MEDIUM_CPU,
    MEDIUM_GPU,
    MEDIUM_STORAGE,
    BlockRemoved,
    BlockStored,
    PublisherConfig,
    external_hashes,
)
from rigs.in_process_publisher import InProcessPublisher
from rigs.offload_always import offload_always


def test_every_medium_tells_what_it_holds(tmp_path):
    save_tiny_model("gemma3", tmp_path / "model")
    config = EngineConfig(
        model=tmp_path / "model",
        device_memory_bytes=700_000,
        max_model_len=256,
        max_step_tokens=128,
        max_num_seqs=4,
        kv_events=PublisherConfig(endpoint="tcp://127.0.0.1:1"),  # never opened: the feed below is its own
    )
    parts = build_parts(EngineConfig(model=config.model, device_memory_bytes=700_000, max_model_len=256,
                                     max_step_tokens=128, max_num_seqs=4))  # fmt: skip
    manager = KVCacheManager(parts.manager.config, hasher=parts.manager.hasher, enable_events=True)
    tiers = {"memory": "300KiB", "tiers": [{"type": "disk", "path": str(tmp_path / "disk"), "size": "64MiB"}]}
    offload = offload_maker(config, offload_always(tiers))(manager, parts.runner)
    publisher = InProcessPublisher()
    held = {medium: [set(), set()] for medium in (MEDIUM_GPU, MEDIUM_CPU, MEDIUM_STORAGE)}
    num_removed = dict.fromkeys(held, 0)

    def listen(batch):
        for event in batch.events:
            match event:
                case BlockStored():
                    held[event.medium][event.group_idx] |= set(event.block_hashes)
                case BlockRemoved():
                    held[event.medium][event.group_idx] -= set(event.block_hashes)
                    num_removed[event.medium] += len(event.block_hashes)

    publisher.subscribe(listen)
    engine = Engine(
        parts.runner,
        manager,
        parts.limits,
        vocab_size=parts.vocab_size,
        offload=offload,
        event_feed=EventFeed(manager, publisher, clock=lambda: 0.0),
    )
    hashes = [[], []]
    for number in range(8):
        prompt = [(number * 31 + token * 7) % 300 + 3 for token in range(200)]
        engine.add_request(str(number), prompt, SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True))
        blocks = next(reversed(manager.requests.values()))
        while engine.has_unfinished:
            engine.step()
        for group in (0, 1):
            hashes[group] += external_hashes(list(blocks.hashes(group)))
    offload.flush(60.0, engine._clock)
    engine.add_request("last", [5] * 20, SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True))
    while engine.has_unfinished:
        engine.step()
    assert held[MEDIUM_GPU] == [set(external_hashes(list(index))) for index in manager.pool.indexes]
    status = offload.status()
    num_in_memory = sum(len(group) for group in held[MEDIUM_CPU])
    assert num_in_memory > 0
    assert abs(num_in_memory - status.num_chunks) <= 2  # the last request's, of which the next step would tell
    assert num_removed[MEDIUM_GPU] > 0
    assert num_removed[MEDIUM_CPU] > 0
    assert held[MEDIUM_STORAGE][0]
    assert held[MEDIUM_STORAGE][0] <= set(hashes[0])
    engine.close()
