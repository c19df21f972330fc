"""Models for engines behind a Gateway, and what ends with a test."""

from contextlib import ExitStack

import pytest

from octavo.engine import save_tiny_model


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gateway") / "qwen3_next"
    save_tiny_model("qwen3_next", folder)
    return folder


@pytest.fixture
def running():
    """Starts things that the test ends with."""
    with ExitStack() as stack:
        yield lambda thing: (stack.callback(thing.close), thing)[1]
