"""vLLM's API server in a process of its own, which has imported vLLM already; or as a person starts it."""

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import openai
import psutil
from forked import FORKS

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
def serving(model: str, folder: Path, *options: str, imports: bool = False) -> Iterator[Server]:
    """A server that is ready."""
    with starting(model, folder, *options, imports=imports) as server:
        server.wait_until_ready()
        yield server


@contextmanager
def starting(model: str, folder: Path, *options: str, imports: bool = False) -> Iterator[Server]:
    """A server that may not be ready yet. `imports`: it imports vLLM itself, as where a person starts it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environ = os.environ | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "INFO",  # what it logs is tested
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONHASHSEED": "0",
    }
    arguments = ["--model", model, "--port", str(port)]
    arguments += ["--host", "127.0.0.1", "--served-model-name", "tiny", "--enforce-eager", "--dtype", "bfloat16"]
    arguments += ["--max-model-len", "1024", "--max-num-seqs", "4", "--kv-cache-memory-bytes", str(64 << 20)]
    arguments += options
    log = folder / "server.log"
    process = (_start if imports else _fork)(environ, arguments, log)
    try:
        yield Server(process, f"http://127.0.0.1:{port}")
    except BaseException:
        print(log.read_text()[-6000:])
        raise
    finally:
        if process.is_running():
            process.send_signal(signal.SIGINT)
            process.wait(300)


def _start(environ: dict[str, str], arguments: list[str], log: Path) -> psutil.Process:
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *arguments]
    with log.open("w") as output:
        return psutil.Popen(bound(command), stdout=output, stderr=output, env=environ)


def _fork(environ: dict[str, str], arguments: list[str], log: Path) -> psutil.Process:
    process = FORKS.Process(target=_serve, args=(environ, arguments, log))
    process.start()
    return psutil.Process(process.pid)


def _serve(environ: dict[str, str], arguments: list[str], log: Path) -> None:
    from vllm.entrypoints.launchers.api_server.entry import main

    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # when the process from which this one forked has ended
    with log.open("w") as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
    os.environ.clear()
    os.environ.update(environ)
    sys.argv[1:] = arguments
    main()
