"""Ray on this machine, and patience with it."""

import os
import sys
import time
import traceback
from contextlib import contextmanager

import ray
from ray import serve
from ray._private.node import Node

PATIENCE_S = 300
_SLOW_MACHINE = {
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "120",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "120",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@contextmanager
def running_ray(*, num_cpus=2, **serve_options):
    """With Serve, until the end. The CPUs are what Ray counts with; nobody need have so many."""
    os.environ |= _SLOW_MACHINE
    _start(num_cpus)
    try:
        serve.start(**serve_options)
        yield
        serve.shutdown()
    finally:
        ray.shutdown()


def _start(num_cpus, *, num_tries=3):
    """Ray gives itself 30 seconds to start, which no setting changes, and a busy machine may take longer."""
    try:
        ray.init(
            _node_ip_address="127.0.0.1",
            num_cpus=num_cpus,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=100 << 20,
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}},
        )
    except Exception as error:  # of no class of its own
        if num_tries == 1 or "timed out during startup" not in str(error):
            raise
        _end_processes(error)
        _start(num_cpus, num_tries=num_tries - 1)


def _end_processes(error):
    """Of the node that failed to start, which nobody but its own call has."""
    callers = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__)]
    for node in callers:
        if isinstance(node, Node):
            node.kill_all_processes(check_alive=False, allow_graceful=False)
    ray.shutdown()


def wait_until(holds, *, of=lambda: ""):
    """`of` tells what is so instead."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, of()
        time.sleep(0.05)
