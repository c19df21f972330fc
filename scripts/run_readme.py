"""Runs the commands of README.md in a fresh copy of the tree, in order, and shows what they print; the first that fails
ends it.

    ```sh        every line is run, in one shell per block
    ```console   lines after "$ " are run; what the README shows below them must be what they print
    ```python    run by the copy's .venv; comments at its end are what it must print
    ... no-run   after the language: left alone, and named at the end

A command whose output the README cuts short shows "..." as its last line.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LANGUAGES = ("sh", "console", "python")
NOT_COPIED = shutil.ignore_patterns(".git", ".venv*", ".*_cache", "__pycache__", ".hypothesis")
TIMEOUT_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    language: str
    is_run: bool
    text: str


def main() -> None:
    blocks = blocks_of((ROOT / "README.md").read_text())
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "octavo"
        shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
        for block in blocks:
            if block.is_run:
                run_block(block, copy)
    for block in blocks:
        if not block.is_run:
            print(f"not run, as marked: {' | '.join(block.text.splitlines())}")


def blocks_of(text: str) -> list[Block]:
    found = re.findall(r"^```(\w+)([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        Block(language=language, is_run="no-run" not in info, text=body)
        for language, info, body in found
        if language in LANGUAGES
    ]


def run_block(block: Block, folder: Path) -> None:
    match block.language:
        case "sh":
            run(["bash", "-euo", "pipefail", "-c", block.text], block.text, folder)
        case "python":
            printed = run([".venv/bin/python", "-W", "error", "-c", block.text], "python: " + block.text, folder)
            compare("python: " + block.text, comments_at_end(block.text), printed)
        case _:
            for command, shown in commands_of(block.text):
                compare(command, shown, run(["bash", "-euo", "pipefail", "-c", command], command, folder))


def commands_of(text: str) -> list[tuple[str, str]]:
    """Each command of a console block, and the output that is shown for it."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def comments_at_end(text: str) -> str:
    lines: list[str] = []
    for line in reversed(text.splitlines()):
        if not line.startswith("#"):
            break
        lines.insert(0, line.removeprefix("#").strip())
    return "\n".join(lines)


def run(arguments: list[str], title: str, folder: Path) -> str:
    print(f"$ {title.strip()}", flush=True)
    done = subprocess.run(
        arguments,
        cwd=folder,
        env=os.environ | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nREADME.md: this command ended with code {done.returncode}: {title}")
    print(done.stdout, flush=True)
    return done.stdout


def compare(command: str, shown: str, printed: str) -> None:
    if shown.rstrip().endswith("\n..."):
        shown = shown.rstrip().removesuffix("...")
        printed = printed[: len(shown)]
    if shown.strip() and shown.strip() != printed.strip():
        sys.exit(f"README.md shows something else than this command prints: {command}\n{printed}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
