"""An engine that nobody asks anything still ends its transfers: what was computed reaches the disk."""

import asyncio

from octavo.engine.async_engine import AsyncEngine
from octavo.engine.config import EngineConfig
from octavo.engine.engine import Engine
from octavo.engine.offloading import offload_maker
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.tiny_models import save_tiny_model
from octavo.offload import OffloadConfig


def test_an_idle_engine_writes_out_what_it_has(tmp_path):
    save_tiny_model("llama", tmp_path / "model")
    config = EngineConfig(model=tmp_path / "model", device_memory_bytes=2 << 20, max_model_len=256)
    tiers = {"memory": "4MiB", "tiers": [{"type": "disk", "path": str(tmp_path / "disk"), "size": "64MiB"}]}
    make_offload = offload_maker(config, OffloadConfig.from_mapping(tiers))

    async def main():
        engine = AsyncEngine(Engine.from_config(config, make_offload=make_offload))
        async for _ in engine.generate(list(range(3, 103)), SamplingParams(max_tokens=2, ignore_eos=True)):
            pass
        on_disk = 0
        while on_disk < 100 // 16:  # ended by the test's time limit, if it never happens
            status = await engine.call(lambda e: e._offload.status())
            on_disk = dict(status.tiers)["disk"].num_chunks
        await engine.close(timeout_s=5)

    asyncio.run(main())
