"""Chat templates that do not end: they hold up neither other requests nor the end of the server."""

import subprocess
import sys
from contextlib import contextmanager
from threading import Event

import httpx
import pytest

from octavo.engine import save_tiny_model
from octavo.server import service
from octavo.server.prompts import PromptReader
from rigs.processes import bound
from rigs.running_server import RunningServer

LOOP = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"
"""It takes minutes: Jinja bounds each range, and not all of them together."""
LOOPS_ON_REQUEST = "{% if loops %}" + LOOP + "{% endif %}{{ messages[0].content }}"
MESSAGES = [{"role": "user", "content": "hi"}]
SLOW = {"messages": MESSAGES, "max_tokens": 1, "chat_template_kwargs": {"loops": True}}
QUICK = {"messages": MESSAGES, "max_tokens": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "looping"
    save_tiny_model("llama", folder)
    (folder / "chat_template.jinja").write_text(LOOPS_ON_REQUEST)
    return folder


@contextmanager
def serving(folder):
    """A process, as the threads that loop would outlive a test."""
    program = "from octavo.cli import main; main()"
    flags = ["serve", folder, "--port", "0", "--device-memory", "16MiB", "--shutdown-timeout", "0"]
    command = bound([sys.executable, "-c", program, *flags])
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, process.stdout.readline().split()[4]
        finally:
            process.kill()


def test_others_are_served_and_the_process_ends(folder):
    """The clients of ten that loop, more than an executor has threads here, do not wait for them."""
    with serving(folder) as (process, url):
        for _ in range(10):
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{url}/v1/chat/completions", json=SLOW, timeout=0.2)
        answer = httpx.post(f"{url}/v1/completions", json={"prompt": "hi", "max_tokens": 1}, timeout=300)
        assert answer.status_code == 200
        process.terminate()
        process.communicate(timeout=300)
        assert process.returncode == 0


def test_one_that_takes_too_long_is_refused(folder, monkeypatch):
    may_end, write = Event(), PromptReader.chat

    def held_up(reader, request):
        if request.chat_template_kwargs:
            may_end.wait()
        return write(reader, request)

    def ask(body, patience_s):
        monkeypatch.setattr(service, "_PATIENCE_S", patience_s)
        return client.post("/v1/chat/completions", json=body)

    monkeypatch.setattr(PromptReader, "chat", held_up)
    server = RunningServer(folder)
    try:
        with server.client() as client:
            for _ in range(2):
                assert ask(QUICK, 60.0).status_code == 200
                refused = ask({**QUICK, "chat_template_kwargs": {"held up": True}}, 0.01)
                assert refused.status_code == 400
                assert "the chat template takes more than 0.01 s" in refused.json()["error"]["message"]
            refused = ask(QUICK, 0.01)
            assert refused.status_code == 429
            assert "still at work on a chat template" in refused.json()["error"]["message"]
            may_end.set()
            assert ask(QUICK, 60.0).status_code == 200
    finally:
        may_end.set()
        server.close()
