"""vLLM's API server in a process of its own."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import openai
import psutil

from rigs.processes import bound

_START_S = 180


class Server(NamedTuple):
    process: psutil.Process
    url: str

    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    def wait_until_ready(self) -> None:
        with self.client().with_options(max_retries=_START_S * 2, timeout=_START_S) as client:
            client.models.list()


@contextmanager
def serving(model: str, folder: Path, *options: str) -> Iterator[Server]:
    """A server that is ready."""
    with starting(model, folder, *options) as server:
        server.wait_until_ready()
        yield server


@contextmanager
def starting(model: str, folder: Path, *options: str) -> Iterator[Server]:
    """A server that may not be ready yet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environ = os.environ | {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "INFO",  # what it logs is tested
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONHASHSEED": "0",
    }
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--port", str(port)]
    command += ["--host", "127.0.0.1", "--served-model-name", "tiny", "--enforce-eager", "--dtype", "bfloat16"]
    command += ["--max-model-len", "1024", "--max-num-seqs", "4", "--kv-cache-memory-bytes", str(64 << 20)]
    command += options
    log = folder / "server.log"
    with (
        log.open("w") as output,
        subprocess.Popen(bound(command), stdout=output, stderr=output, env=environ) as process,
    ):
        try:
            yield Server(psutil.Process(process.pid), f"http://127.0.0.1:{port}")
        except BaseException:
            print(log.read_text()[-6000:])
            raise
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(300)
