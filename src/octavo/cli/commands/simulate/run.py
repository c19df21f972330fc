"""Runs simulations: one in this process, several on as many cores, with a bar that estimates the remaining time."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Any

from octavo.cli.commands.simulate.question import Question, config_of
from octavo.errors import InputError
from octavo.http import taking_signals

if TYPE_CHECKING:
    from octavo.sim import SimReport, Trace

_LOOK_EVERY_S = 0.2
_STOP = -1
_SAFE_PATH = "PYTHONSAFEPATH"
_shared: Any = None
"""In a worker process: the requests that each simulation has served; at `_STOP`, 1 once all must end."""


def ask_all(questions: Sequence[Question], trace: "Trace") -> "list[tuple[Question, SimReport]]":
    """The results, or those so far if it is interrupted, by Ctrl-C or another signal that asks for an end."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    console = Console(stderr=True)
    with (
        taking_signals(_interrupt),
        Progress(*columns, transient=True, console=console, disable=not console.is_terminal) as progress,
    ):
        if len(questions) == 1:
            task = progress.add_task("requests", total=len(trace.requests))
            report = _ask(questions[0], trace, lambda done: progress.update(task, completed=done))
            return [(questions[0], report)] if report.num_requests else []
        task = progress.add_task(f"{len(questions)} configurations", total=len(questions) * len(trace.requests))
        with _outside_the_folder():
            return _ask_several(questions, trace, lambda done: progress.update(task, completed=done))


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _ask_several(
    questions: Sequence[Question], trace: "Trace", note_progress: Callable[[int], None]
) -> "list[tuple[Question, SimReport]]":
    with _starting_processes():
        workers, shared = _open_workers(len(questions))
    futures: list[Future[SimReport]] = []
    is_interrupted = False
    with workers:
        try:
            with _starting_processes():
                for index, question in enumerate(questions):
                    futures.append(workers.submit(_ask_in_worker, index, question, trace))
            while wait(futures, timeout=_LOOK_EVERY_S).not_done:
                note_progress(sum(shared[:-1]))
        except KeyboardInterrupt:
            is_interrupted = True
            shared[_STOP] = 1
            workers.shutdown(wait=True, cancel_futures=True)
    reports = [_report_of(future, is_interrupted=is_interrupted) for future in futures]
    # After Ctrl-C, some may have no report.
    return [(each, report) for each, report in zip(questions, reports, strict=False) if report and report.num_requests]


def _report_of(future: "Future[SimReport]", *, is_interrupted: bool) -> "SimReport | None":
    """The report of a simulation; None of one that had not begun, or that the same signal has ended: `timeout` and
    systemd send it to all processes."""
    try:
        return None if future.cancelled() else future.result()
    except BrokenProcessPool as error:
        if is_interrupted:
            return None
        raise InputError(
            "a process with one of the simulations was killed, as the system does where it lacks memory: ask for "
            "fewer sizes, or for one at a time"
        ) from error


@contextmanager
def _starting_processes() -> Iterator[None]:
    """Ctrl-C in a terminal goes to all processes, and so does its end. Those that are started here never hear either,
    not even while they import what they need: the command tells them when to stop. They must hear SIGTERM, with which
    their executor ends those that are left when one was killed."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGHUP])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _outside_the_folder() -> Iterator[None]:
    """Processes that are started meanwhile take no module from the current folder, where a file may be called
    `types.py`. Python would look there until it is told where the command does."""
    was = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if was is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = was


def _open_workers(num_questions: int) -> tuple[ProcessPoolExecutor, Any]:
    """Processes, and what they share."""
    context = get_context("spawn")
    try:
        shared = context.Array("q", num_questions + 1, lock=False)
        return ProcessPoolExecutor(
            os.cpu_count(), mp_context=context, initializer=_start_worker, initargs=(shared,)
        ), shared
    except OSError as error:
        raise InputError(
            f"several simulations share memory in /dev/shm, and it gives none ({error.strerror}): make room there, or "
            "ask for one size at a time"
        ) from error


def _start_worker(shared: Any) -> None:
    global _shared  # noqa: PLW0603 - the only way to give workers shared memory
    _shared = shared
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends a worker whose command was killed: it would compute on, and then wait for ever."""
    command = parent_process()
    assert command is not None, "a worker has a parent"
    command.join()
    os._exit(1)


def _ask_in_worker(index: int, question: Question, trace: "Trace") -> "SimReport":
    def note_progress(done: int) -> None:
        _shared[index] = done
        if _shared[_STOP] and done < len(trace.requests):
            raise KeyboardInterrupt

    return _ask(question, trace, note_progress)


def _ask(question: Question, trace: "Trace", note_progress: Callable[[int], None]) -> "SimReport":
    """Serves the trace under one configuration."""
    from octavo.sim import PLACEMENTS, replay

    return replay(
        trace,
        config_of(question, trace),
        num_engines=question.engines,
        make_place=PLACEMENTS[question.placement],
        note_progress=note_progress,
    )
