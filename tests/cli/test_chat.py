"""`octavo chat` against a real server: turns, commands, and trouble that ends no conversation."""

import httpx
import pytest

pytest.importorskip("torch", reason="needs the engine: pip install 'octavo[engine]'")

from octavo.cli.commands.chat import Conversation, talk
from octavo.cli.output import printable
from octavo.engine import save_tiny_model
from rigs.running_server import serving


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_tiny_model("qwen3", folder)
    with serving(folder) as running:
        yield running


@pytest.fixture
def typed(monkeypatch):
    """What somebody types, line by line, and then Ctrl+D."""

    def type_lines(*lines):
        left = list(lines)

        def answer(prompt):
            if not left:
                raise EOFError
            return left.pop(0)

        monkeypatch.setattr("builtins.input", answer)

    return type_lines


def test_a_conversation(octavo, server, typed):
    typed("hello", "", "/help", "and now?", "/reset", "hello", "/quit", "never sent")
    ran = octavo("chat", server.url, "--temperature", 0, "--max-tokens", 6, "--system", "Be brief.")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].startswith("tiny at http://127.0.0.1:")
    first, second = lines[1], lines[-2]
    assert lines[-1].endswith(" prompt tokens resumed)")
    assert first == second  # nothing is left of what was said before /reset
    assert "(a new conversation)" in lines
    assert "/reset forgets" in ran.out


def test_lines_of_any_bytes_are_sent(octavo, server, typed):
    typed("a\udcffb", "/quit")
    ran = octavo("chat", server.url, "--max-tokens", 3)
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_an_address_that_no_look_up_takes_is_refused(octavo, host):
    ran = octavo("chat", f"http://{host}:8000")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith("is not an address: a part of its host's name is empty or too long\n")


@pytest.mark.parametrize("temperature", ["nan", "1e400"])
def test_a_temperature_that_is_no_number_is_refused(octavo, temperature):
    ran = octavo("chat", "http://127.0.0.1:1", "--temperature", temperature)
    assert ran.code == 2
    assert "--temperature must be a number" in ran.err


@pytest.mark.parametrize(("is_terminal", "code"), [(True, 0), (False, 1)])
def test_a_script_learns_of_trouble_by_the_status(octavo, server, typed, monkeypatch, is_terminal, code):
    """Whoever types has read it."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: is_terminal, raising=False)
    typed("hello", "/quit")
    ran = octavo("chat", server.url, "--model", "another")
    assert (ran.code, "there is no model 'another' here" in ran.err) == (code, True)
    typed("hello", "/quit")
    assert octavo("chat", server.url, "--max-tokens", 3).code == 0


def test_what_was_said_before_is_sent_along(server):
    with httpx.Client(base_url=server.url, timeout=300) as client:
        conversation = Conversation(client, "tiny", None, {"max_tokens": 3, "temperature": 0})
        said = ["".join(conversation.say(text)) for text in ("one", "two")]
    assert [message["role"] for message in conversation.messages] == ["user", "assistant"] * 2
    assert [message["content"] for message in conversation.messages] == ["one", said[0], "two", said[1]]
    conversation.reset()
    assert conversation.messages == []


def test_what_would_steer_a_terminal_is_left_out():
    assert printable("a\x1b[31mb\x07\r\n\tc\u009bd\ud800\u202eé") == "a[31mb\n\tcdé"


def test_an_answer_that_is_cut_short_is_remembered_so_far(server):
    with httpx.Client(base_url=server.url, timeout=300) as client:
        conversation = Conversation(client, "tiny", None, {"max_tokens": 400, "ignore_eos": True})
        answer = conversation.say("go on")
        first = next(answer)
        answer.close()
    assert conversation.messages[-1] == {"role": "assistant", "content": first}


def test_trouble_is_said_and_forgotten(server, capsys):
    with httpx.Client(base_url=server.url, timeout=300) as client:
        conversation = Conversation(client, "another", None, {})
        lines = iter(["hello", None])
        talk(conversation, lambda: next(lines))
    assert "404: there is no model 'another' here" in capsys.readouterr().err
    assert conversation.messages == []


def test_a_conversation_that_no_longer_fits_is_told_how_to_go_on(server, capsys):
    with httpx.Client(base_url=server.url, timeout=300) as client:
        conversation = Conversation(client, "tiny", "Be brief.", {"max_tokens": 3})
        lines = iter(["word " * 4000, "hello", "word " * 4000, None])
        talk(conversation, lambda: next(lines))
    alone, after_another = capsys.readouterr().err.splitlines()
    assert "longer than the longest context" in alone
    assert "/reset" not in alone
    assert after_another.endswith("; /reset begins a new conversation")
    assert len(conversation.messages) == 3


def test_nobody_answers(octavo):
    ran = octavo("chat", "http://127.0.0.1:9")
    assert ran.code == 2
    assert "does not answer" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "url", ["ftp://host", "http://", "http://a:b:c", "http://127.0.0.1:0", "http://127.0.0.1:73536"]
)
def test_addresses_that_are_none(octavo, url):
    ran = octavo("chat", url)
    assert (ran.code, ran.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("key", ["é", "two\nlines", ""])
@pytest.mark.parametrize("command", [["chat"], ["bench", "serve"]])
def test_keys_that_no_header_can_carry(octavo, command, key):
    ran = octavo(*command, "http://127.0.0.1:9", "--api-key", key)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "the API key must be printable ASCII" in ran.err
