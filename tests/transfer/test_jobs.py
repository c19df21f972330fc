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
