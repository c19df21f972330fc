"""A router's machine needs nothing that runs a model: neither torch nor transformers."""

from contextlib import closing

import httpx
import pytest

from rigs.octavo_process import ENGINE_PACKAGES, OctavoProcess, start_octavo
from rigs.running_router import RoutedEngine
from rigs.running_server import MODEL


def test_it_routes_and_shows_itself(model, running):
    engine = running(RoutedEngine(model))
    router = running(OctavoProcess("route", engine.url, "--port", "0", without=ENGINE_PACKAGES))
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "Hello?"}], "max_tokens": 3}
    with httpx.Client(base_url=router.url, timeout=300) as client:
        while client.get("/health").status_code != httpx.codes.OK:  # it has yet to find the engine
            pass
        assert client.post("/v1/chat/completions", json=chat).json()["usage"]["completion_tokens"] == 3
        assert "[DONE]" in client.post("/v1/chat/completions", json={**chat, "stream": True}).text
        assert client.post("/v1/completions", json={"prompt": "Hello?", "temperature": -1}).status_code == 400
        seen = {path: client.get(path).status_code for path in ("/", "/fleet", "/metrics", "/v1/models")}
    assert set(seen.values()) == {httpx.codes.OK}


def test_it_selects():
    with closing(OctavoProcess("select", "--port", "0", without=ENGINE_PACKAGES)) as selection:
        assert httpx.get(f"{selection.url}/health", timeout=300).status_code == httpx.codes.OK


@pytest.mark.parametrize("command", [["serve", "--tiny", "gemma3"], ["demo"]])
def test_what_runs_a_model_says_what_it_needs(command):
    process = start_octavo(*command, without=ENGINE_PACKAGES)
    _, errors = process.communicate()
    assert (process.returncode, "Traceback" in errors, "pip install 'octavo[engine]'" in errors) == (2, False, True)
