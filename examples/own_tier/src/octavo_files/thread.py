"""The one thread that touches the folder. It does things in the order in which they were asked for."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from xxhash import xxh3_64_digest

CHECKSUM_BYTES = 8


class FolderThread:
    """Writes, reads and deletes files. The tier bounds how much it asks for. After the first error all else fails too,
    so that nothing is written into room that a failed deletion did not make."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.problem = ""
        """The first error; empty while there is none."""
        self._queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        # A daemon: where a file system hangs, the process can end all the same.
        threading.Thread(target=self._run, name="octavo-files", daemon=True).start()

    def write(self, name: str, key: bytes, content: bytes) -> Future[None]:
        return self._submit(lambda: self._write(name, key, content))

    def read(self, name: str, key: bytes) -> Future[bytes | None]:
        """The content of a file; None where it is not there, or is damaged."""
        return self._submit(lambda: self._read(name, key))

    def delete(self, name: str) -> Future[None]:
        return self._submit(lambda: (self._folder / name).unlink(missing_ok=True))

    def wait_idle(self, timeout_s: float) -> bool:
        return not wait([self._submit(lambda: None)], timeout_s).not_done

    def close(self) -> None:
        self._queue.put(None)

    def _submit(self, work: Callable[[], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        self._queue.put((done, work))
        return done

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            done, work = item
            try:
                done.set_result(self._do(work))
            except OSError as error:
                self.problem = str(error)
                done.set_exception(error)

    def _do(self, work: Callable[[], Any]) -> Any:
        if self.problem:
            raise OSError(self.problem)
        return work()

    def _write(self, name: str, key: bytes, content: bytes) -> None:
        (self._folder / name).write_bytes(xxh3_64_digest(key + content) + content)

    def _read(self, name: str, key: bytes) -> bytes | None:
        try:
            data = (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        checksum, content = data[:CHECKSUM_BYTES], data[CHECKSUM_BYTES:]
        return content if checksum == xxh3_64_digest(key + content) else None
