"""Real servers of stores, started by scripts. Tests and benchmarks start them here."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rigs.processes import SCRIPTS, bound

_CANNOT_RUN = 77


class MissingError(Exception):
    """What a server needs is not installed."""


@contextmanager
def serving(script: str, folder: Path, *options: str) -> Iterator[dict[str, str]]:
    """What a script says of the server that it has started."""
    command = bound([SCRIPTS / script, folder, *options])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        told = {}
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            name, _, value = line.strip().partition("=")
            told[name] = value
            if name == "READY":
                break
        else:
            reason = process.stderr.read().strip()
            raise (MissingError if process.wait() == _CANNOT_RUN else RuntimeError)(f"{script}: {reason}")
        yield told
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
