"""`octavo simulate`: a table, a curve, a picture, JSON; and what is wrong is said before minutes are spent."""

import json
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[2] / "examples/models/gpt-oss-20b.json"


SWEEP = ("--device", "1GiB", "--sweep", "memory=1GiB..4GiB:2")


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Twenty requests of three sessions that grow, with a common first block."""
    path = tmp_path_factory.mktemp("traces") / "trace.jsonl"
    lines = []
    for number in range(20):
        session, turn = number % 3, number // 3
        ids = [0, *(1000 * (session + 1) + block for block in range(2 * turn + 2))]
        lines.append(
            {"timestamp": 700 * number, "input_length": 512 * len(ids) - 9, "output_length": 20, "hash_ids": ids}
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_table(octavo, trace):
    ran = octavo("simulate", trace, "--model", MODEL, "--device", "4GiB", "--memory", "8GiB", "--disk", "16GiB")
    assert ran.code == 0, ran.err
    assert "20 requests" in ran.out
    assert "prompt tokens resumed" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_json_says_the_same(octavo, trace):
    ran = octavo("simulate", trace, "--model", MODEL, "--json", "--compare", "policy=lru,memory=1GiB")
    (first, second) = json.loads(ran.out)["results"]
    assert first["configuration"]["policy"] == "resume_points"
    assert (second["configuration"]["policy"], second["configuration"]["memory"]) == ("lru", "1GiB")
    assert sum(first["resumed_tokens"].values()) == pytest.approx(first["resumed_share"] * first["prompt_tokens"])


def test_a_curve_and_a_picture(octavo, trace, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curve.svg"
    ran = octavo("simulate", trace, "--model", MODEL, *SWEEP, "--plot", picture)
    assert ran.code == 0, ran.err
    assert "1 GiB" in ran.out
    assert "4 GiB" in ran.out
    assert picture.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--sweep", "memory=1GiB"], "is not of the form memory=16GiB..512GiB"),
        (["--sweep", "policy=lru..arc"], "what can be swept: device, memory, disk"),
        (["--sweep", "memory=2GiB..1GiB"], "2GiB is not below 1GiB"),
        (["--sweep", "memory=1GiB..2GiB:1"], "a curve has 2 to 64 points"),
        (["--sweep", "memory=1GiB..2GiB", "--compare", "policy=lru"], "ask one at a time"),
        (["--plot", "curve.png"], "add --sweep"),
        (["--sweep", "memory=1GiB..2GiB", "--plot", "curve.gif"], "must end in .svg or .png"),
        (["--compare", "colour=red"], "what may differ: device, memory, disk, policy"),
        (["--policy", "nothing"], "choose one of: arc, lru, resume_points"),
        (["--placement", "anywhere"], "choose one of round_robin"),
        (["--device", "1MiB"], "memory"),
        (["--memory", "much"], "--memory"),
        (["--prefill-rate", "0"], "--prefill-rate must be a number above 0"),
        (["--trace-block", "16"], "blocks of another size"),
    ],
)
def test_what_is_wrong_is_said(octavo, trace, flags, complaint):
    ran = octavo("simulate", trace, "--model", MODEL, *flags)
    assert ran.code == 2
    assert complaint in ran.err
    assert len(ran.err.splitlines()) == 1
