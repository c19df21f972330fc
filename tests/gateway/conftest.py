"""A model for engines behind a Gateway."""

import pytest

from octavo.engine import save_tiny_model


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gateway") / "qwen3_next"
    save_tiny_model("qwen3_next", folder)
    return folder
