"""`GET /why/{id}` through the official client: every reason is produced for real, by a server that runs."""

import time
from contextlib import contextmanager

import httpx
import openai
import pytest

from octavo.cli import run
from octavo.engine import save_tiny_model
from rigs.running_server import MODEL, serving

BLOCK = 16


class Asker:
    """One server, asked through the official client."""

    def __init__(self, server):
        self.server = server
        self.client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=300)

    def ask(self, prompt, **options):
        """A completion, and why it resumed where it did."""
        answer = self.client.completions.create(
            model=MODEL, **{"prompt": prompt, "max_tokens": 2, "temperature": 0, **options}
        )
        report = httpx.get(f"{self.server.url}/why/{answer.id}", timeout=300).json()
        assert report["resumed_tokens"] == answer.usage.prompt_tokens_details.cached_tokens
        return report


@pytest.fixture
def asker(server):
    with server.client() as client:
        client.post("/reset_prefix_cache")
    asker = Asker(server)
    with asker.client:
        yield asker


def prompt_of(start, length):
    return [start + token % 90 for token in range(length)]


def test_all_was_resumed(asker):
    first, second = asker.ask("w" * 100), asker.ask("w" * 100)
    assert (first["resumed_tokens"], first["lost_tokens"], first.get("cause")) == (0, 0, None)
    assert (second["resumed_tokens"], second["resumed_by_medium"]) == (96, {"device": 96})
    assert "no request could resume more" in " ".join(second["story"])


def test_a_changed_salt_is_named(asker):
    asker.ask("x" * 100, extra_body={"cache_salt": "one"})
    report = asker.ask("x" * 100, extra_body={"cache_salt": "two"})
    differs = report["differs"]
    assert (differs["block"], differs["parts"], differs["tokens"]) == (0, ["cache_salt"], [0, BLOCK])
    assert differs["num_equal_blocks"] == 100 // BLOCK


def test_a_changed_token_is_named(asker):
    prompt = prompt_of(5, 160)
    first = asker.ask(prompt)
    prompt[70] = 4
    report = asker.ask(prompt)
    differs = report["differs"]
    assert (differs["request_id"], differs["block"], differs["parts"]) == (first["request_id"], 70 // BLOCK, ["tokens"])
    assert differs["num_equal_blocks"] == 160 // BLOCK - 1
    assert report["resumed_tokens"] <= 64
    assert f"block {70 // BLOCK} (tokens 64 to 79)" in " ".join(report["story"])


def test_a_reset_is_named(asker):
    first = asker.ask("y" * 100)
    httpx.post(f"{asker.server.url}/reset_prefix_cache", timeout=300)
    report = asker.ask("y" * 100)
    assert (report["resumed_tokens"], report["was_reset_after"]) == (0, first["request_id"])


def test_what_the_device_gave_up_for_whom(model_folder):
    with serving(model_folder, device_memory_bytes=1 << 20) as server:
        asker = Asker(server)
        with asker.client:
            first = asker.ask(prompt_of(7, 300))
            others = [asker.ask(prompt_of(100 + number, 480))["request_id"] for number in range(6)]
            report = asker.ask(prompt_of(7, 300))
    assert (report["cause"], report["computed_before_by"]) == ("evicted", first["request_id"])
    assert (report["computed_before_tokens"], report["lost_tokens"]) == (288, 288 - report["resumed_tokens"])
    assert report["lost_seconds"] > 0
    (left,) = report["missing"]["left"]
    assert (left["medium"], left["how"]) == ("device", "evicted")
    assert left["by"] in others


def test_log_probabilities_of_a_prompt_resume_nothing(asker):
    asker.ask("z" * 100)
    report = asker.ask("z" * 100, extra_body={"prompt_logprobs": 1})
    assert (report["bypassed"], report["resumed_tokens"]) == (True, 0)


def test_an_unknown_request_is_refused(server):
    answer = httpx.get(f"{server.url}/why/chatcmpl-nobody", timeout=300)
    assert answer.status_code == 404
    assert "chatcmpl-nobody" in answer.json()["error"]["message"]


def test_the_command_tells_the_same(asker, capsys):
    report = asker.ask("v" * 100)
    assert run(["why", report["request_id"], "--url", asker.server.url]) == 0
    assert capsys.readouterr().out.splitlines() == report["story"]
    assert run(["why", "nobody", "--url", asker.server.url]) == 2
    assert "nobody" in capsys.readouterr().err


def test_a_chat_carries_the_id_too(asker):
    answer = asker.client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hello"}], max_completion_tokens=2
    )
    report = httpx.get(f"{asker.server.url}/why/{answer.id}", timeout=300).json()
    assert report["prompt_tokens"] == answer.usage.prompt_tokens


# ---- below the device ------------------------------------------------------------------------------------------------


@contextmanager
def on_disk(model_folder, tmp_path, **engine):
    tiers = [{"type": "disk", "path": str(tmp_path / "disk"), "size": "64MiB"}]
    with serving(model_folder, offload={"staging": "4MiB", "tiers": tiers}, **engine) as server:
        asker = Asker(server)
        with asker.client:
            yield asker


def forget_device(asker):
    """Only the disk has anything, and has all that was promised."""
    assert asker.server.ask(lambda engine: engine._offload.flush(30, time.monotonic))
    httpx.post(f"{asker.server.url}/reset_prefix_cache", timeout=300)


def test_a_damaged_record_is_told(model_folder, tmp_path):
    prompt = prompt_of(11, 200)
    with on_disk(model_folder, tmp_path) as asker:
        asker.ask(prompt)
        forget_device(asker)
        for file in (tmp_path / "disk").glob("**/segment-*"):
            data = bytearray(file.read_bytes())
            for at in range(4096 + 2048, len(data), 4096):
                data[at] ^= 0xFF
            file.write_bytes(data)
        report = asker.ask(prompt)
    assert report["cause"] == "damaged"
    assert report["missing"]["left"][-1]["medium"] == "disk"
    assert report["missing"]["left"][-1]["how"] in ("damaged", "unreadable")
    assert report["resumed_tokens"] < report["computed_before_tokens"]


def test_what_nobody_promised_is_told(tmp_path_factory):
    """Recurrent state is kept where the first prompt ends, and not where the second one leaves it."""
    folder = tmp_path_factory.mktemp("models") / "state"
    save_tiny_model("qwen3_next", folder)
    prompt = prompt_of(13, 400)
    with serving(folder) as server:
        asker = Asker(server)
        with asker.client:
            first = asker.ask(prompt)
            report = asker.ask([*prompt[:300], *prompt_of(60, 40)])
    assert (report["cause"], report["missing"]["kind"]) == ("never kept", "mamba")
    assert (report["computed_before_tokens"], report["computed_before_by"]) == (256, first["request_id"])
    assert "no writer promised that boundary" in " ".join(report["story"])


def test_a_restart_with_another_dtype_is_told(model_folder, tmp_path):
    prompt = prompt_of(17, 100)
    with on_disk(model_folder, tmp_path) as asker:
        asker.ask(prompt)
    with on_disk(model_folder, tmp_path, dtype="bfloat16") as asker:
        report = asker.ask(prompt)
    assert (report["resumed_tokens"], report["computed_before_tokens"]) == (0, 0)
    assert "dtype was 'float32' and is 'bfloat16'" in report["cold_start"]
    assert report["cold_start"] in " ".join(report["story"])
