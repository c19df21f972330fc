"""`octavo warm` against real servers: what it sends is resumed by whoever asks for it next."""

import json

import httpx
import pytest

pytest.importorskip("torch", reason="needs the engine: pip install 'octavo[engine]'")

from octavo.engine import save_tiny_model
from rigs.running_router import RoutedEngine, RunningRouter
from rigs.running_server import MODEL, serving

CHAT = [{"role": "user", "content": "What is a sheet? " * 6}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_tiny_model("gemma3", folder)
    return folder


@pytest.fixture(scope="module")
def server(folder):
    with serving(folder) as running:
        yield running


def write(path, *lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


def cached(url, route, **body):
    answer = httpx.post(f"{url}{route}", json={"model": MODEL, "max_tokens": 1, **body}, timeout=300).json()
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_what_was_warmed_is_resumed(octavo, server, tmp_path):
    file = write(
        tmp_path / "prompts", '"' + "a" * 100 + '"', "", {"prompt": "b" * 80, "cache_salt": "mine"}, {"messages": CHAT}
    )
    ran = octavo("warm", server.url, file)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("3 of 3 prompts are warm: ")
    assert cached(server.url, "/v1/completions", prompt="a" * 100) == 96
    assert cached(server.url, "/v1/completions", prompt="b" * 80) == 0
    assert cached(server.url, "/v1/completions", prompt="b" * 80, cache_salt="mine") == 64
    assert cached(server.url, "/v1/chat/completions", messages=CHAT) > 90


def test_fields_about_answers_are_left_out(octavo, server, tmp_path):
    line = {"prompt": [1, 2, 3], "max_tokens": 9, "min_tokens": 5, "n": 4, "best_of": 4, "stream": True}
    ran = octavo("warm", server.url, write(tmp_path / "prompts", json.dumps(line)))
    assert (ran.code, ran.err) == (0, "")


def test_a_file_from_windows(octavo, server, tmp_path):
    file = tmp_path / "prompts"
    file.write_bytes(b'\xef\xbb\xbf"hello"\r\n\r\n{"prompt": "there"}\r\n')
    ran = octavo("warm", server.url, file)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("2 of 2 prompts are warm: ")


def test_a_refused_prompt_is_told_by_its_line(octavo, server, tmp_path):
    file = write(
        tmp_path / "prompts", {"prompt": "c" * 40}, {"prompt": "d" * 4000}, {"prompt": []}, {"prompt": "e" * 40}
    )
    ran = octavo("warm", server.url, file, "--parallel", 1)
    assert ran.code == 1
    assert ran.out.startswith("2 of 4 prompts are warm: 80 tokens")
    first, second = ran.err.splitlines()
    assert f"{file}:2: 400" in first
    assert f"{file}:3: 400" in second


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "no JSON"),
        ('{"prompt": ' + "9" * 5000 + "}", "has a number of too many digits"),
        (r'"\ud83d"', "this holds half of a surrogate pair"),
        ("3", "write a text"),
        ('{"prompt": "a", "messages": []}', "write a text"),
        ("", "has no prompt"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_is_sent(octavo, server, tmp_path, line, told):
    ran = octavo("warm", server.url, write(tmp_path / "prompts", line))
    assert ran.code == 2
    assert told in ran.err
    assert str(tmp_path / "prompts") in ran.err


def test_no_file_and_no_server(octavo, tmp_path):
    assert octavo("warm", "http://127.0.0.1:1", tmp_path / "none").code == 2
    ran = octavo("warm", "http://127.0.0.1:1", write(tmp_path / "prompts", '"a"'), "--model", MODEL)
    assert (ran.code, "prompts:1: the server does not answer" in ran.err) == (1, True)


def test_through_a_router(octavo, folder, tmp_path):
    engine = RoutedEngine(folder)
    router = RunningRouter([engine.url])
    try:
        router.wait_until_known(1)
        ran = octavo("warm", router.url, write(tmp_path / "prompts", {"prompt": "f" * 100}))
        assert ran.code == 0, ran.err
        assert cached(router.url, "/v1/completions", prompt="f" * 100) == 96
    finally:
        router.close()
        engine.close()
