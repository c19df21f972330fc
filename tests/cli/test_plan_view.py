"""The report for a person: what it says, and how it is drawn."""

import json
from pathlib import Path

import pytest

from octavo.cli.commands.plan.sheet_picture import sheet_picture

MODELS = Path(__file__).parents[2] / "examples" / "models"


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("model", sorted(MODELS.glob("*.json")), ids=lambda path: path.stem)
def test_fits_the_terminal(octavo, monkeypatch, model, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    ran = octavo("plan", model, "--compare", "vllm", "--context", "4k")
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= columns
    assert "\x1b" not in ran.out
    assert "…" not in ran.out  # nothing is cut off
    assert not any(line != line.rstrip() for line in ran.out.splitlines())


@pytest.mark.parametrize("columns", [10, 40])
def test_a_narrow_terminal_cuts_no_number(octavo, monkeypatch, columns):
    flags = ("plan", MODELS / "gemma-3-27b.json", "--context", "8k,128k", "--compare", "vllm")
    tokens = json.loads(octavo(*flags, "--json").out)["tokens"]
    monkeypatch.setenv("COLUMNS", str(columns))
    out = octavo(*flags).out
    assert "…" not in out
    assert f"{tokens:,}" in out


def test_says_it_all(octavo):
    report = octavo("plan", MODELS / "gemma-3-27b.json", "--compare", "vllm", "--tp", "2").out
    lines = [" ".join(line.split()) for line in report.splitlines()]
    assert lines[0] == "Gemma3ForConditionalGeneration: 40 GiB, context 131,072 tokens, one of 2 ranks"
    assert "■ 0 10 × full_attention 16 640 KiB 40 KiB 5 GiB" in lines
    assert "■ 1 52 × sliding_window 1,024 16 3.25 MiB fixed 1.85 GiB" in lines
    assert "Beside vLLM's plan" in lines
    assert any(line.startswith("tokens") and line.endswith("x") for line in lines)
    assert any(line.startswith("Wasted: ") for line in lines)
    assert any(line.endswith("pages made equal parts of a sheet") for line in lines)


def test_block_sizes_are_a_range(octavo):
    report = octavo("plan", MODELS / "gemma-4-26b-a4b.json", "--compare", "vllm").out
    assert "16 to 32" in report


def test_every_page_is_equally_wide():
    whole, quarters = sheet_picture([(1, 1.0), (4, 1.0)], 40)
    assert whole.text == "█" * 39
    assert quarters.text.split(" ") == ["█" * 9] * 4
    for pages in (2, 3, 5, 7, 21):
        (bar,) = sheet_picture([(pages, 1.0)], 76)
        widths = {len(cell) for cell in bar.text.replace("▌", "▌ ").split()}
        assert len(widths) == 1
        assert bar.pages_per_cell == 1


def test_padding_is_light():
    (bar,) = sheet_picture([(2, 0.75)], 42)
    assert bar.text == "███████████████░░░░░ ███████████████░░░░░"


def test_many_pages_share_a_cell():
    many, one = sheet_picture([(200, 0.99), (1, 1.0)], 76)
    assert many.text == "▊" * 50
    assert many.pages_per_cell == 4
    assert len(one.text) == 49  # ends with the bar above, but for the gap


@pytest.mark.parametrize("pages", [1, 2, 79, 997, 100_003])
def test_any_number_of_pages_can_be_drawn(pages):
    (bar,) = sheet_picture([(pages, 0.5)], 76)
    assert 0 < len(bar.text) <= 76
