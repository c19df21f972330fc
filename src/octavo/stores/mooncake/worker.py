"""The program of the process with Mooncake's library, which may block, hang or crash, as an engine must not.

A request is a line of JSON on stdin, an answer one on stdout. Their bytes are in shared memory: each lane of it holds
one request at a time, with its values one after another. The process ends when stdin does.

This file is run by its path, and imports nothing of Octavo: the process starts quickly.
"""

import ctypes
import json
import mmap
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

_MISSING = -704
_CONNECT_S = 2.0
_CLOSE_S = 5
_MOST_REPLICAS = 3


class Library:
    """Mooncake's library, with the memory of the lanes. Its answer is a number for each name: bytes, or an error below
    zero."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from mooncake.store import MooncakeDistributedStore, ReplicateConfig

        host, _, port = settings["master"].rpartition(":")
        with socket.create_connection((host, int(port)), _CONNECT_S) as connection:  # the library tries for longer
            own_host = settings["host"] or connection.getsockname()[0]
        self._memory = mmap.mmap(settings["memory"], 0)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._store = MooncakeDistributedStore()
        code = self._store.setup(
            own_host,
            settings["metadata_server"],
            settings["segment_bytes"],
            0,
            settings["protocol"],
            settings["device"],
            settings["master"],
        ) or self._store.register_buffer(self._start, len(self._memory))
        if code:
            segment = settings["segment_bytes"]
            wanted = f", asked for {segment:,} bytes of memory (segment_size)" if segment else ""
            raise OSError(f"Mooncake's library does not start{wanted}: error {code}")
        self._once = ReplicateConfig()
        self._kept = ReplicateConfig()
        self._kept.with_hard_pin = True  # it is not given up for room
        self._kept.replica_num = _MOST_REPLICAS
        self._lane_bytes = settings["lane_bytes"]

    def do(self, what: str, lane: int, names: Sequence[str], sizes: Sequence[int]) -> list[int]:
        starts = [0, *accumulate(sizes)][: len(sizes)]
        at = self._start + lane * self._lane_bytes
        addresses = [at + start for start in starts]
        match what:
            case "read":
                answers = self._store.batch_get_into(names, addresses, sizes)
            case "read_starts":
                answers = self._read_starts(at, names, starts, sizes)
            case "write" | "keep":
                answers = self._store.batch_put_from(names, addresses, sizes, self._config(what == "keep"))
            case "replace" | "keep_other":
                answers = self._store.batch_upsert_from(names, addresses, sizes, self._config(what == "keep_other"))
            case _:
                raise ValueError(f"{what} is not known")
        return list(answers)

    def close(self) -> None:
        self._store.close()

    def _config(self, is_kept: bool) -> Any:
        return self._kept if is_kept else self._once

    def _read_starts(self, at: int, names: Sequence[str], starts: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Reads the beginnings of many names, of which few may be there; all others cost one round trip together."""
        answers = [_MISSING if code == 0 else min(code, 0) for code in self._store.batch_is_exist(names)]
        there = [index for index, code in enumerate(answers) if code == 0]
        if there:
            (read,) = self._store.get_into_ranges(
                [at],
                [[names[index] for index in there]],
                [[[starts[index]] for index in there]],
                [[[0]] * len(there)],
                [[[sizes[index]] for index in there]],
            )
            for index, (code,) in zip(there, read, strict=True):
                answers[index] = code
        return answers


def serve(library: Library, tell: Callable[..., None], num_lanes: int) -> None:
    def answer(request: dict[str, Any]) -> None:
        try:
            codes = library.do(request["do"], request["lane"], request["names"], request["sizes"])
            tell(lane=request["lane"], codes=codes)
        except Exception as error:  # noqa: BLE001 - the library's error; the engine goes on
            tell(lane=request["lane"], error=f"{type(error).__name__}: {error}")

    lanes = ThreadPoolExecutor(num_lanes)
    for line in sys.stdin:
        lanes.submit(answer, json.loads(line))


def main() -> None:
    answers, lock = os.dup(1), threading.Lock()
    os.dup2(2, 1)  # the library may print

    def tell(**what: Any) -> None:
        line = json.dumps(what).encode() + b"\n"
        with lock:
            while line:
                line = line[os.write(answers, line) :]

    settings = json.loads(sys.stdin.readline() or "{}")
    try:
        library = Library(settings)
    except ImportError as error:
        tell(error=str(error), of="import")
        return
    except OSError as error:
        tell(error=str(error))
        return
    tell(is_ready=True)
    serve(library, tell, settings["lanes"])
    if settings["segment_bytes"]:  # gives memory to the pool
        signal.alarm(_CLOSE_S)  # ends the process, whatever the library waits for
        library.close()
    os._exit(0)


if __name__ == "__main__":
    main()
