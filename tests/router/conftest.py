"""Models for fleets."""

import pytest

from octavo.engine import save_tiny_model


@pytest.fixture(scope="session", params=["gemma3", "qwen3_next"])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("routed") / request.param
    save_tiny_model(request.param, folder)
    return folder
