"""Fixtures: a tiny hybrid model, made once, and a server of it for each file of tests."""

import openai
import pytest

from octavo.engine import save_tiny_model
from rigs.running_server import serving


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_tiny_model("gemma3", folder)
    return folder


@pytest.fixture(scope="module")
def server(model_folder):
    with serving(model_folder) as running:
        yield running
        running.check_nothing_is_left()


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


@pytest.fixture
def official(server):
    """OpenAI's own client."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=300) as client:
        yield client
