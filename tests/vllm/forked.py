"""Processes forked from one that has imported vLLM already: the import takes longer than what most tests do with it."""

import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest

_LAST_WORDS_S = 10
_HERE = Path(__file__).parent
_PATHS = (os.environ.get("PYTHONPATH"), str(_HERE), str(_HERE.parent / "lib"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATHS))
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["forked_from"])


@contextmanager
def forked(function: Callable[..., object], *arguments: Any, **named: Any) -> Iterator[Connection]:
    """A process that calls a function of a module with a connection and the arguments; yields the other end."""
    here, there = FORKS.Pipe()
    process = FORKS.Process(target=_run, args=(dict(os.environ), function, there, arguments, named))
    process.start()
    there.close()
    try:
        yield here
    except EOFError:
        process.join(_LAST_WORDS_S)  # it waits for ranks, which wait for it
        pytest.fail(f"the process ended with {process.exitcode}: its output is above")
    else:
        here.close()
        process.join()
    finally:
        if process.is_alive():
            for one in (*psutil.Process(process.pid).children(recursive=True), process):
                one.kill()


def call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What it returns in a process of its own."""
    with forked(_answer, function, *arguments, **named) as connection:
        return connection.recv()


def _answer(connection: Connection, function: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    connection.send(function(*arguments, **named))


def _run(
    environ: dict[str, str],
    function: Callable[..., object],
    connection: Connection,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
) -> None:
    os.environ.clear()
    os.environ.update(environ)
    try:
        function(connection, *arguments, **named)
    finally:
        with socket.socket(fileno=os.dup(connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)  # ranks that forked from here have it, too
