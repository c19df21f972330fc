"""Speeds that are fitted are those that the samples were made with; what tells nothing is refused with the remedy."""

import json
from itertools import product

import pytest

from octavo.errors import InputError
from octavo.sim import Speeds, read_speeds

TRUE = Speeds(prefill_tokens_per_s=7000.0, context_s_per_token_pair=3e-9, step_s=0.012, decode_s_per_request=0.0004)
OTHERWISE = Speeds(disk_bytes_per_s=5e9)


def sample(prompt, cached, open_requests):
    return {
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "first_token_s": TRUE.step_s + TRUE.prefill_s(cached, prompt),
        "between_tokens_s": TRUE.step_s + TRUE.decode_s_per_request * open_requests,
        "open_requests": open_requests,
    }


def write(path, samples):
    path.write_text(json.dumps({"samples": samples, "hit_rate": 0.5}))
    return path


def test_what_the_samples_were_made_with_is_found(tmp_path):
    alone = write(
        tmp_path / "1.json",
        [sample(cached + new, cached, 1) for new, cached in product((100, 900, 30_000), (0, 5000, 20_000))],
    )
    many = write(tmp_path / "8.json", [sample(900, 0, count) for count in (4, 8, 7.5)])
    found = read_speeds([alone, many], OTHERWISE)
    assert found.prefill_tokens_per_s == pytest.approx(TRUE.prefill_tokens_per_s)
    assert found.context_s_per_token_pair == pytest.approx(TRUE.context_s_per_token_pair)
    assert found.step_s == pytest.approx(TRUE.step_s)
    assert found.decode_s_per_request == pytest.approx(TRUE.decode_s_per_request)
    assert found.disk_bytes_per_s == OTHERWISE.disk_bytes_per_s


def test_one_at_a_time_tells_no_share_of_a_request(tmp_path):
    found = read_speeds([write(tmp_path / "1.json", [sample(100 * n, 0, 1) for n in range(1, 10)])], OTHERWISE)
    assert found.decode_s_per_request == OTHERWISE.decode_s_per_request
    assert found.step_s + found.decode_s_per_request == pytest.approx(TRUE.step_s + TRUE.decode_s_per_request)


@pytest.mark.parametrize(
    ("samples", "complaint"),
    [
        ([sample(100 * n, 0, 2) for n in range(1, 10)], "are needed, and 0 had:"),
        ([sample(100, 0, 1)] * 9, "prompts of one length"),
        ([sample(100 * n, 0, 1) | {"first_token_s": 1.0} for n in range(1, 10)], "longer prompts did not take longer"),
        ([{"prompt_tokens": "many"}], "not from octavo bench serve"),
    ],
)
def test_what_tells_nothing_is_refused(tmp_path, samples, complaint):
    with pytest.raises(InputError, match=complaint):
        read_speeds([write(tmp_path / "speeds.json", samples)], OTHERWISE)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_speeds([tmp_path / "nothing.json"], OTHERWISE)
