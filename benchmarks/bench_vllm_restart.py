"""What a disk gives back inside vLLM after a crash: how much, whether it is right, and how much lies there.

    bench_vllm_restart.py [--model gemma3] [--lmcache]                          in the environment that has vLLM

12 conversations of three turns; then vLLM and what runs beside it are killed. A new engine is asked the next turn, on
copies of the disk: as it was; with one byte changed of each MiB, counted over all files; and as it was, when the
model's folder has got other weights. Shown are the tokens that were resumed, of all that the next turn shares with the
one before, and the answers that vLLM alone does not give. In the end four engines, one after the other and each killed,
have other conversations on a disk that may take 24 MiB: what lies there after each. `--lmcache` adds LMCache with its
folder of files (`fs_native`, with eviction; see `lmcache_peer`), whose server is killed with each engine.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from bench_vllm_conversations import ANSWER, BLOCK_TOKENS, MESSAGE, generate, make_engine, make_model
from lmcache_peer import LMCacheServer, prepare_vllm
from vllm_engines import Engine, kv_transfer, reply

CONVERSATIONS, TURNS = 12, 3
MEMORY = 64 << 20
DISK, SMALL_DISK = 1 << 30, 24 << 20
FILLS = 4
ALONE, OCTAVO, LMCACHE = "vLLM alone", "Octavo", "LMCache"
LRU = {"eviction_policy": "LRU", "trigger_watermark": 1.0, "eviction_ratio": 0.2}

Prompts = list[list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gemma3")
    parser.add_argument("--lmcache", action="store_true")
    asked = parser.parse_args()
    names = (OCTAVO, LMCACHE) if asked.lmcache else (OCTAVO,)
    with tempfile.TemporaryDirectory() as folder:
        play(Restarts(Path(folder), asked.model), {name: Path(folder, name) for name in names})


def play(restarts: "Restarts", disks: dict[str, Path]) -> None:
    for name, disk in disks.items():
        restarts.converse(name, disk)
        restarts.show(f"{name:<8} as it was       ", name, disk)
        restarts.show(f"{name:<8} damaged         ", name, disk, damage)
    restarts.change_weights()
    for name, disk in disks.items():
        restarts.show(f"{name:<8} of other weights", name, disk)
    for name, disk in disks.items():
        sizes = ", ".join(f"{size / 2**20:.1f}" for size in restarts.fill(name, Path(f"{disk} small")))
        print(f"{name:<8} has {sizes} MiB after each engine, where {SMALL_DISK >> 20} are allowed", flush=True)


class Restarts:
    """A model, and the conversations with it."""

    def __init__(self, folder: Path, family: str) -> None:
        self._folder, self._family = folder, family
        self._turns: list[Prompts] = []
        """Each turn's prompts."""
        make_model(str(folder / "model"), family)
        source = random.Random(0)
        said: Prompts = [[] for _ in range(CONVERSATIONS)]
        with self._engine(ALONE, folder) as engine:
            for _ in range(TURNS + 1):
                self._turns.append([one + tokens(source) for one in said])
                self._right = [answer for answer, _ in engine.ask(self._turns[-1])]
                said = [prompt + answer for prompt, answer in zip(self._turns[-1], self._right, strict=True)]

    def converse(self, name: str, disk: Path) -> None:
        """All turns but the last."""
        with self._engine(name, disk) as engine:
            for prompts in self._turns[:-1]:
                engine.ask(prompts)
            wait_until_written(disk)

    def show(self, what: str, name: str, disk: Path, change: Callable[[Path], None] = lambda _: None) -> None:
        """Asks a new engine the last turn, on a changed copy of this disk."""
        with tempfile.TemporaryDirectory() as other:
            copy = Path(shutil.copytree(disk, f"{other}/disk"))
            change(copy)
            with self._engine(name, copy) as engine:
                answers = engine.ask(self._turns[-1])
        num_wrong = sum(answer != right for (answer, _), right in zip(answers, self._right, strict=True))
        resumed = sum(cached for _, cached in answers) / sum(len(prompt) + ANSWER for prompt in self._turns[-2])
        print(f"{what} resumed {resumed:5.1%}, {num_wrong} of {CONVERSATIONS} answers wrong", flush=True)

    def change_weights(self) -> None:
        """The model's folder gets other weights."""
        make_model(str(self._folder / "model"), self._family, seed=1)
        with self._engine(ALONE, self._folder) as engine:
            self._right = [answer for answer, _ in engine.ask(self._turns[-1])]

    def fill(self, name: str, disk: Path) -> Iterator[int]:
        """The bytes that lie on a small disk after each of several engines, which are killed."""
        source = random.Random(1)
        for _ in range(FILLS):
            with self._engine(name, disk, SMALL_DISK) as engine:
                engine.ask([tokens(source) * 4 for _ in range(CONVERSATIONS)])
                yield wait_until_written(disk)

    @contextmanager
    def _engine(self, name: str, disk: Path, disk_bytes: int = DISK) -> Iterator[Engine]:
        """An engine with this disk, which is killed in the end with what runs beside it."""
        with ExitStack() as beside:
            transfer: dict[str, Any] | None = None
            if name == LMCACHE:
                adapter = {"type": "fs_native", "base_path": str(disk), "max_capacity_gb": disk_bytes / 2**30}
                server = LMCacheServer(MEMORY, BLOCK_TOKENS, "--l2-adapter", json.dumps(adapter | {"eviction": LRU}))
                beside.callback(server.kill)
                transfer = server.kv_transfer()
            elif name == OCTAVO:
                digests = str(self._folder)
                transfer = kv_transfer(memory=MEMORY, disk=str(disk), disk_size=disk_bytes, digests=digests)
            engine = Engine(__file__, str(self._folder), self._family, json.dumps(transfer))
            beside.callback(engine.kill)
            engine.read()
            yield engine


def tokens(source: random.Random) -> list[int]:
    return [source.randrange(4, 512) for _ in range(source.randint(*MESSAGE))]


def wait_until_written(disk: Path) -> int:
    """Waits until nothing was written for two seconds. Returns the bytes that lie there."""
    size, since = bytes_in(disk), time.monotonic()
    while time.monotonic() - since < 2:
        time.sleep(0.1)
        if (now := bytes_in(disk)) != size:
            size, since = now, time.monotonic()
    return size


def bytes_in(disk: Path) -> int:
    total = 0
    for path in files_of(disk):
        with suppress(FileNotFoundError):  # given up meanwhile
            total += path.stat().st_blocks * 512
    return total


def files_of(disk: Path) -> list[Path]:
    return sorted(path for path in disk.rglob("*") if path.is_file())


def damage(disk: Path) -> None:
    """Changes one byte of each MiB, counted over all files."""
    place = (1 << 20) - 1
    for path in files_of(disk):
        content = bytearray(path.read_bytes())
        while place < len(content):
            content[place] ^= 0x40
            place += 1 << 20
        path.write_bytes(content)
        place -= len(content)


# ---- in the engine's process ----------------------------------------------------------------------------------------


def serve(folder: str, family: str, transfer: dict[str, Any] | None) -> None:
    if transfer and transfer["kv_connector"] != "OffloadingConnector":
        prepare_vllm()
    llm = make_engine(folder, family, transfer)
    reply("ready")
    for line in sys.stdin:
        (prompts,) = json.loads(line)
        answers = [generate(llm, prompt) for prompt in prompts]
        generate(llm, prompts[0][:5])  # vLLM stores in its next step
        reply(answers)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        serve(sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
    else:
        main()
