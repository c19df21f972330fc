"""What `octavo demo` shows of figures: bars, ratios, and whether answers differ."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from octavo.cli import run
from octavo.cli.commands.demo.command import exit_code, introduction
from octavo.cli.commands.demo.kinds import KINDS
from octavo.cli.commands.demo.run import GroupNeed, KindResult, Turn
from octavo.cli.commands.demo.view import conclusion, show_kind, times


def turn(first_token_s: float, answer: tuple[int, ...] = (5, 6, 7)) -> Turn:
    return Turn(prompt_tokens=3000, answer=answer, first_token_s=first_token_s, resumed={})


RESULT = KindResult(
    kind="state + full",
    family="qwen3_next",
    computed=[turn(4.0), turn(2.0), turn(1.0), turn(3.0)],
    served=[turn(4.0), turn(0.02), turn(0.021), turn(0.4)],
    needs=[
        GroupNeed(kind="full_attention", blocks=196, blocks_in_all=196),
        GroupNeed(kind="sliding_window", blocks=32, blocks_in_all=196),
    ],
)


def test_each_way_has_its_time_its_ratio_and_its_bar() -> None:
    lines = show_kind(RESULT).splitlines()
    assert lines[2].split()[-3:] == ["1,000", "ms", "█" * 31]
    assert lines[3].split()[-4:] == ["20", "ms", "50x", "▋"]
    assert lines[5].split()[-4:] == ["400", "ms", "2.5x", "█" * 12 + "▍"]


def test_what_a_resume_needs_is_told_by_kind_of_layer() -> None:
    last = show_kind(RESULT).splitlines()[-1]
    assert last == "  resumed with blocks: 196 of 196 of full attention, 32 of 196 of sliding window"


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("hanging_up")
def test_a_signal_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: signal.Signals) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def run_and_end(kind: str, folder: Path, *, advance: object) -> None:
        assert folder.parent == tmp_path
        signal.raise_signal(end)

    monkeypatch.setattr("octavo.cli.commands.demo.run.run_kind", run_and_end)
    for of_the_process in ("torch.set_num_threads", "octavo.cli.commands.demo.command.quiet_transformers"):
        monkeypatch.setattr(of_the_process, lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        run(["demo"])
    assert ended.value.code == 128 + end
    assert not list(tmp_path.iterdir())


def test_a_ratio_is_rounded_down() -> None:
    assert (times(47.6), times(10), times(2.59), times(0.99)) == ("47", "10", "2.5", "0.9")


def test_the_sentence_has_the_smallest_and_the_largest_ratio() -> None:
    text = " ".join(conclusion([RESULT]).split())
    assert "2.5 to 50 times sooner" in text
    assert "all 4 answers are the same" in text
    assert exit_code([RESULT]) == 0


def test_an_answer_that_differs_is_told_and_fails_the_command() -> None:
    wrong = replace(RESULT, served=[*RESULT.served[:3], turn(0.4, answer=(5, 6, 8))])
    assert "ANSWERS DIFFER: 1 with state + full" in conclusion([RESULT, wrong])
    assert exit_code([RESULT, wrong]) == 1


@pytest.mark.parametrize(("path", "command"), [(".venv/bin", "octavo"), ("", ".venv/bin/octavo")])
def test_what_to_type_next_can_be_typed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str, command: str
) -> None:
    installed = tmp_path / ".venv" / "bin" / "octavo"
    installed.parent.mkdir(parents=True)
    installed.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr("sys.argv", [".venv/bin/octavo", "demo"])
    shown = conclusion([RESULT])
    assert f"\n    {command} chat " in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_everything_fits_80_columns() -> None:
    slow = replace(RESULT, computed=[turn(99.0)] * 4, served=[turn(0.0001)] * 4)
    longest = max(KINDS, key=len)
    shown = [introduction(), show_kind(replace(slow, kind=longest)), conclusion([slow])]
    assert max(len(line) for text in shown for line in text.splitlines()) <= 80
