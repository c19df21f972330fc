"""An engine that nobody asks anything still ends its transfers; and a reset waits for the disk without stopping it."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.config import EngineConfig
from octavo.engine.engine import Engine
from octavo.engine.offloading import offload_maker
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.tiny_models import save_tiny_model
from octavo.offload import LoadRule, OffloadConfig
from octavo.tiers.disk import DiskConfig, DiskSpec
from rigs.faulty_disk import FaultyDiskIO


@pytest.fixture
def disk_io():
    return FaultyDiskIO()


@pytest.fixture
def open_engine(tmp_path, disk_io):
    """Opens an engine that has computed a prompt, which is on disk."""
    save_tiny_model("llama", tmp_path / "model")
    config = EngineConfig(model=tmp_path / "model", device_memory_bytes=2 << 20, max_model_len=256)
    disk = DiskSpec(DiskConfig.from_mapping({"path": str(tmp_path / "disk"), "size": "64MiB"}), disk_io)
    make_offload = offload_maker(config, OffloadConfig(memory=4 << 20, tiers=(disk,), loads=LoadRule.ALWAYS))

    @asynccontextmanager
    async def opened():
        engine = AsyncEngine(Engine.from_config(config, make_offload=make_offload))
        await generate(engine)
        on_disk = 0
        while on_disk < 100 // 16:  # ended by the test's time limit, if it never happens
            status = await engine.call(lambda e: e._offload.status())
            on_disk = dict(status.tiers)["disk"].num_chunks
        yield engine
        await engine.close(timeout_s=5)

    return opened


async def generate(engine):
    async for _ in engine.generate(list(range(3, 103)), SamplingParams(max_tokens=2, ignore_eos=True)):
        pass


def test_an_idle_engine_writes_out_what_it_has(open_engine):
    async def main():
        async with open_engine():
            pass

    asyncio.run(main())


def test_a_reset_is_confirmed_by_the_disk_and_requests_go_on_meanwhile(open_engine, disk_io):
    async def main():
        async with open_engine() as engine:
            with disk_io.hanging("sync") as gate:
                waiting = asyncio.create_task(engine.reset_prefix_cache(timeout_s=60))
                await asyncio.to_thread(gate.wait_for_call)
                await generate(engine)
                assert not waiting.done()
                assert not await engine.reset_prefix_cache(timeout_s=0.02)
            assert await waiting
            assert await engine.reset_prefix_cache()

    asyncio.run(main())
