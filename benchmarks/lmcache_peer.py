"""`LMCacheServer`: LMCache 0.5.6 as a peer inside vLLM on CPUs, for benchmarks with `--lmcache`.

Its packages beside those of vLLM's environment, where its own list would bring CUDA and older ones:

    pip install --no-deps lmcache==0.5.6 aiofile aiofiles awscrt blake3 caio nvtx py-cpuinfo redis sortedcontainers \
        opentelemetry-api opentelemetry-sdk opentelemetry-semantic-conventions opentelemetry-exporter-prometheus
"""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self
from unittest import mock

QUIET = {"LMCACHE_LOG_LEVEL": "ERROR", "LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1"}
_COMPILERS = ("llvmlite", "numba")


class LMCacheServer:
    """Its server, with this much memory, and the way to it for an engine in this process. Hybrids need that the server
    copies (`lmcache_driven`)."""

    def __init__(self, num_bytes: int, chunk_tokens: int, *settings: str) -> None:
        self._port, http_port = _free_ports(2)
        command: list[str | Path] = [Path(sys.executable).with_name("lmcache"), "server"]
        command += ["--host", "127.0.0.1", "--port", str(self._port)]
        command += ["--http-host", "127.0.0.1", "--http-port", str(http_port)]
        command += ["--chunk-size", str(chunk_tokens), "--l1-size-gb", str(num_bytes / 2**30)]
        command += ["--eviction-policy", "LRU", "--disable-metrics", *settings]
        self._process = subprocess.Popen(command, env=os.environ | QUIET, stdout=subprocess.DEVNULL)

    def kv_transfer(self) -> dict[str, Any]:
        return {
            "kv_connector": "LMCacheMPConnector",
            "kv_connector_module_path": "lmcache.integration.vllm.lmcache_mp_connector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "lmcache.mp.host": "tcp://127.0.0.1",
                "lmcache.mp.port": self._port,
                "lmcache.mp.mp_transfer_mode": "lmcache_driven",
            },
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def kill(self) -> None:
        """As a crash ends it."""
        self._process.kill()
        self._process.wait()


def part_from_server(llm: Any) -> None:
    """Ends this engine; call it before its server ends, for which it would wait for five minutes."""
    llm.llm_engine.engine_core.shutdown()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def prepare_vllm() -> None:
    """Call it before vLLM starts in this process: on CPUs it looks through all modules for its kernels, and trips over
    llvmlite, which LMCache brings."""
    os.environ |= QUIET
    from vllm.triton_utils import dispatcher

    look = dispatcher._rebind_kernels  # noqa: SLF001

    def look_past_compilers(overrides: Any) -> None:
        others = {name: module for name, module in sys.modules.items() if not name.startswith(_COMPILERS)}
        with mock.patch.object(sys, "modules", others):
            look(overrides)

    mock.patch.object(dispatcher, "_rebind_kernels", look_past_compilers).start()
