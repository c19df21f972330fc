"""Threads that run transfers: their end."""

import time
from threading import Barrier, Event

from octavo.transfer.jobs import JobRunner, Outcome


def test_closing_waits_once_for_all_jobs_that_hang():
    names = [str(number) for number in range(64)]
    is_over, all_hang = Event(), Barrier(len(names) + 1)

    def hang():
        all_hang.wait()
        is_over.wait()
        return Outcome()

    runner = JobRunner(*names, max_jobs=len(names))
    for job_id, name in enumerate(names):
        runner.submit(job_id, 1, hang, thread=name)
    all_hang.wait()
    begun = time.monotonic()
    runner.close(0.5)
    is_over.set()
    assert time.monotonic() - begun < 16, "each thread has got the time of all"
    assert {result.job_id for result in runner.get_finished()} == set(range(len(names)))


def test_only_when_no_thread_is_at_work_it_is_closed():
    """Asked again, too: what was given up may still be going on."""
    has_begun, is_over = Event(), Event()

    def hang():
        has_begun.set()
        is_over.wait()
        return Outcome()

    runner = JobRunner("store", "load", max_jobs=2)
    runner.submit(1, 1, hang, thread="load")
    has_begun.wait()
    assert not runner.close(0.1)
    assert not runner.close(0.1)
    is_over.set()
    assert runner.close(60)
