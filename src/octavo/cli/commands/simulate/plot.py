"""The curve of a sweep as a picture."""

import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.cli.commands.simulate.question import Question
from octavo.cli.commands.simulate.view import size_in_gib
from octavo.errors import InputError
from octavo.extras import load_package
from octavo.replacing import replacing

if TYPE_CHECKING:
    from octavo.sim import SimReport

_FORMATS = (".svg", ".png")


def check_plot(path: Path) -> None:
    """Checks the file, its folder and the drawing library before minutes of simulation."""
    if path.suffix not in _FORMATS:
        raise InputError(f"--plot: {str(path)!r} must end in {' or '.join(_FORMATS)}")
    target = Path(os.path.realpath(path))  # a link to a file that is not there yet is made in that one's folder
    is_writable = os.access(target.parent, os.W_OK) and (not target.exists() or os.access(target, os.W_OK))
    if target.is_dir() or not is_writable:
        raise InputError(f"--plot: {str(path)!r} cannot be written: name a file in a folder that is there and writable")
    load_package("matplotlib", "--plot")


def draw(path: Path, results: "Sequence[tuple[Question, SimReport]]", swept: str) -> None:
    """Draws shares of prompt tokens by medium, stacked, under the ceiling."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    sizes = [size_in_gib(getattr(question, swept)) for question, _ in results]
    reports = [report for _, report in results]
    media = list(dict.fromkeys(medium for report in reports for medium in report.resumed_tokens))
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    shares = [[r.resumed_tokens.get(medium, 0) / r.prompt_tokens * 100 for r in reports] for medium in media]
    if media:  # requests that share nothing resume nothing
        axes.stackplot(sizes, shares, labels=[f"from {medium}" for medium in media], alpha=0.8)
    axes.axhline(max(r.seen_share for r in reports) * 100, color="black", linestyle=":", label="computed before")
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,.4g}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel(f"{swept}, GiB")
    axes.set_ylabel("prompt tokens resumed, %")
    axes.margins(x=0)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.93))
    metadata = {"Date": None} if path.suffix == ".svg" else None  # the same curve makes the same file
    picture = BytesIO()
    with rc_context({"svg.hashsalt": "octavo", "svg.fonttype": "none"}):
        figure.savefig(picture, format=path.suffix.removeprefix("."), metadata=metadata)
    _write(path, picture.getvalue())


def _write(path: Path, picture: bytes) -> None:
    """Writes the whole picture or nothing: on a full disk a former one stays."""
    try:
        with replacing(Path(os.path.realpath(path)), mode=0o666) as file:
            file.write(picture)
    except OSError as error:
        raise InputError(f"--plot: {str(path)!r} cannot be written: {error.strerror}") from error
