"""The report of `octavo demo`: a line with a bar for each way of serving, and the sentence to remember."""

import sys
from pathlib import Path
from shutil import which
from textwrap import fill

from octavo.cli.commands.demo.run import COMPUTED, MEDIA, KindResult

_COLUMNS = 80
_BAR_WIDTH = 31
_EIGHTHS = " ▏▎▍▌▋▊▉"
_NEXT_STEPS = """
Serve such a model, or one of your own, and chat with it:
    {octavo} serve --tiny gemma3
    {octavo} serve /models/yours --memory 16GiB --disk /var/cache/octavo
    {octavo} chat http://127.0.0.1:8000
"""


def show_kind(result: KindResult) -> str:
    """A heading, and a line with a bar for each way of serving."""
    longest = result.first_token_s(COMPUTED)
    lines = [f"\n{result.kind} ({result.family})"]
    for way in (COMPUTED, *MEDIA):
        seconds = result.first_token_s(way)
        ratio = "" if way == COMPUTED else f"{times(result.times_sooner(way))}x"
        lines.append(f"  {way:<26} {seconds * 1000:>7,.0f} ms {ratio:>6}  {_bar(seconds / longest)}")
    lines.append(f"  {_needs(result)}")
    return "\n".join(lines) + "\n"


def _needs(result: KindResult) -> str:
    """The part of what was computed that the last turn resumed with."""
    parts = [f"{need.blocks} of {need.blocks_in_all} of {need.kind.replace('_', ' ')}" for need in result.needs]
    return f"resumed with blocks: {', '.join(parts)}"


def conclusion(results: list[KindResult]) -> str:
    """The sentence to remember, or the kinds whose answers differ."""
    wrong = [f"{result.num_differing} with {result.kind}" for result in results if result.num_differing]
    if wrong:
        return f"\nANSWERS DIFFER: {', '.join(wrong)}. This is a bug; please report it.\n"
    ratios = [result.times_sooner(way) for result in results for way in MEDIA]
    sentence = (
        f"Octavo computes a conversation once: the next answer begins {times(min(ratios))} to {times(max(ratios))} "
        f"times sooner, after a restart too, and all {sum(len(result.served) for result in results)} answers are the "
        "same, token by token."
    )
    return f"\n{fill(sentence, _COLUMNS)}\n{_NEXT_STEPS.format(octavo=_command())}"


def times(ratio: float) -> str:
    """The ratio, rounded down: it never claims more than was measured."""
    return f"{int(ratio):,}" if ratio >= 10 else f"{int(ratio * 10) / 10:.1f}"


def _command() -> str:
    """The command as it was called where its name alone is not found, as `.venv/bin/octavo` in a clone."""
    called = sys.argv[0]
    return called if Path(called).name == "octavo" and which("octavo") is None else "octavo"


def _bar(share: float) -> str:
    eighths = max(1, round(min(share, 1) * _BAR_WIDTH * 8))
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()
