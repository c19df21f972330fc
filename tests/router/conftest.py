"""Models for fleets, and what ends with a test."""

from contextlib import ExitStack

import pytest

from octavo.engine import save_tiny_model


@pytest.fixture(scope="session", params=["gemma3", "qwen3_next"])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("routed") / request.param
    save_tiny_model(request.param, folder)
    return folder


@pytest.fixture
def running():
    """Starts things that the test ends with."""
    with ExitStack() as stack:
        yield lambda thing: (stack.callback(thing.close), thing)[1]
