"""How Hypothesis looks for counterexamples: the same ones every time, or (`HYPOTHESIS_PROFILE=dev`) ever new ones.

And what tests start: things that end with a test, and the signals that processes take.
"""

import gc
import importlib.util
import logging
import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers

collect_ignore = [] if importlib.util.find_spec("vllm") else ["vllm"]
"""The suites against the real vLLM are there only where vLLM is (`make test-vllm`)."""

_PHASES = set(Phase) - {Phase.explain}  # to explain a failed run of a state machine takes longer than to find it
settings.register_profile("ci", derandomize=True, max_examples=60, deadline=None, print_blob=True, phases=_PHASES)
settings.register_profile("dev", max_examples=400, deadline=None, phases=_PHASES)
settings.register_profile("any", settings.get_profile("ci"), phases=_PHASES - {Phase.shrink})
"""Any counterexample will do, it need not be the smallest."""
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if settings().derandomize:
    # Hypothesis draws numbers that stand in the source of modules which are loaded by then: a file of tests run alone
    # would try other examples than in a run of all, and a number that changes anywhere would change them everywhere.
    pytest.MonkeyPatch().setattr(providers, "_get_local_constants", providers.Constants, raising=False)

os.environ.setdefault("SSL_CERT_DIR", str(Path(__file__).parent))
"""There are no certificates here: hundreds of httpx clients would each read those of the whole Web, for 60 ms."""

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Tiny tensors are slower on many threads, and many times slower where others keep the cores busy."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control ignores it for its background jobs, and every process below would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish():
    """What was imported for the tests stays: hundreds of thousands of objects, through which the collector of garbage
    would go again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def running():
    """Starts things that the test ends with."""
    with ExitStack() as stack:
        yield lambda thing: (stack.callback(thing.close), thing)[1]


@pytest.fixture
def hanging_up():
    """Processes that are started then take SIGHUP as a terminal's do, though `nohup` may run the tests. Called with
    SIG_IGN, it makes them ignore it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield lambda handler: signal.signal(signal.SIGHUP, handler)
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def restored_logs():
    """What a server logs, and where, is set for the whole process: later tests would see more than they expect."""
    loggers = [logging.getLogger(name) for name in ("octavo", "uvicorn.access", "uvicorn.error", "asyncio")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


class _Keeping(logging.Handler):
    """Keeps what is logged."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(self.format(record))


@pytest.fixture(autouse=True)
def lost_errors():
    """asyncio only logs what it finds wrong: an exception that nobody asks for, or a task that is destroyed while it
    waits. Here that fails the test in which it is logged, unless the test takes it out of this list."""
    handler = _Keeping(logging.ERROR)
    logger = logging.getLogger("asyncio")
    logger.addHandler(handler)
    yield handler.messages
    logger.removeHandler(handler)
    assert not handler.messages
