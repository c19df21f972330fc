"""The demonstration: every turn comes from where its line says, and no answer differs."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.cli.commands.demo import run as demo
from octavo.offload import LoadChooser


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    """What the demonstration froze: nothing of it would ever be collected in this process."""
    yield
    gc.unfreeze()


@pytest.mark.parametrize("kind", ["window + full", "state + full"])
def test_turns_come_from_the_medium_that_their_line_names(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where loads seem to take an hour, as after a first one on a busy machine."""
    monkeypatch.setattr(LoadChooser, "loading_s", lambda *_: 3600.0)
    ways: list[str] = []
    result = demo.run_kind(kind, tmp_path, document_tokens=400, advance=ways.append)
    assert len(ways) == demo.NUM_STEPS
    assert result.num_differing == 0
    assert not any(sum(turn.resumed.values()) for turn in result.computed)
    for way, medium in demo.MEDIA.items():
        turn = result.turn(way)
        assert turn.resumed[medium] > turn.prompt_tokens / 2, way
        assert sum(turn.resumed.values()) > turn.prompt_tokens * 0.7, way
    by_kind = {need.kind: need for need in result.needs}
    full = by_kind.pop("full_attention")
    assert full.blocks == full.blocks_in_all > 0
    assert all(need.blocks < need.blocks_in_all for need in by_kind.values())
