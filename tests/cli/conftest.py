"""How the tests of commands run them: in this process, with what was printed."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from octavo.cli import run


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    code: int
    out: str
    err: str


Octavo = Callable[..., Ran]


@pytest.fixture
def octavo(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, restored_logs: None) -> Octavo:
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments: object) -> Ran:
        code = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Ran(code=code, out=printed.out, err=printed.err)

    return command
