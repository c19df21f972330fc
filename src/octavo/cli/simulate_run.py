"""Runs simulations: one in this process, several on as many cores, with a bar that estimates the remaining time."""

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TYPE_CHECKING, Any

from octavo.cli.simulate_question import Question, config_of
from octavo.errors import InputError

if TYPE_CHECKING:
    from octavo.sim import SimReport, Trace

_LOOK_EVERY_S = 0.2
_STOP = -1
_shared: Any = None
"""In a worker process: the requests that each simulation has served; at `_STOP`, 1 once all must end."""


def ask_all(questions: Sequence[Question], trace: "Trace") -> "list[tuple[Question, SimReport]]":
    """The results, or those so far if it is interrupted."""
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
    with Progress(*columns, transient=True, console=console, disable=not console.is_terminal) as progress:
        if len(questions) == 1:
            task = progress.add_task("requests", total=len(trace.requests))
            report = _ask(questions[0], trace, lambda done: progress.update(task, completed=done))
            return [(questions[0], report)] if report.num_requests else []
        task = progress.add_task(f"{len(questions)} configurations", total=len(questions) * len(trace.requests))
        return _ask_several(questions, trace, lambda done: progress.update(task, completed=done))


def _ask_several(
    questions: Sequence[Question], trace: "Trace", note_progress: Callable[[int], None]
) -> "list[tuple[Question, SimReport]]":
    workers, shared = _open_workers(len(questions))
    with workers:
        futures: list[Future[SimReport]] = [
            workers.submit(_ask_in_worker, index, question, trace) for index, question in enumerate(questions)
        ]
        try:
            while wait(futures, timeout=_LOOK_EVERY_S).not_done:
                note_progress(sum(shared[:-1]))
        except KeyboardInterrupt:
            shared[_STOP] = 1
            workers.shutdown(wait=True, cancel_futures=True)
    answers = [
        (each, future.result()) for each, future in zip(questions, futures, strict=True) if not future.cancelled()
    ]
    return [(question, report) for question, report in answers if report.num_requests]


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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the command tells when to stop
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
