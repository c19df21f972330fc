"""Ray on this machine, and patience with it."""

import os
import sys
import time
from contextlib import contextmanager

import ray
from ray import serve

PATIENCE_S = 120
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
    ray.init(
        _node_ip_address="127.0.0.1",
        num_cpus=num_cpus,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 << 20,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}},
    )
    try:
        serve.start(**serve_options)
        yield
        serve.shutdown()
    finally:
        ray.shutdown()


def wait_until(holds, *, of=lambda: ""):
    """`of` tells what is so instead."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, of()
        time.sleep(0.05)
