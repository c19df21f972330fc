"""The server as a process, on the device that `OCTAVO_TEST_DEVICE` names."""

from contextlib import closing

import httpx
from workloads import DEVICE, Family

from rigs.octavo_process import OctavoProcess

NUM_TOKENS = 6


def test_a_server_answers_as_plain_hugging_face(tmp_path):
    family = Family("gemma3", tmp_path / "model")
    prompt = list(range(5, 75))
    expected = family.answer(prompt, NUM_TOKENS).tokens
    sizes = ["--memory", "64MiB", "--device-memory", "64MiB" if DEVICE == "cpu" else "80%"]
    with closing(OctavoProcess("serve", str(family.folder), "--port", "0", "--device", DEVICE, *sizes)) as server:
        wanted = {"model": "model", "prompt": prompt, "max_tokens": NUM_TOKENS, "temperature": 0, "ignore_eos": True}
        for num_cached in (0, 64):
            asked = httpx.post(
                f"{server.url}/v1/completions", json={**wanted, "return_token_ids": True}, timeout=300
            ).json()
            assert asked["choices"][0]["token_ids"] == expected
            assert asked["usage"]["prompt_tokens_details"]["cached_tokens"] == num_cached
