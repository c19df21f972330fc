"""Octavo's block manager resumes where vLLM's does, or later; where it resumes earlier, the reason is a known one.

The comparison and its modes are in benchmarks/compare_resumes.py.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from compare_resumes import CASES, Case, Mode, compare, is_refused

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),
]

SEED, NUM_REQUESTS = 20, 120
SUPPORTED = [case for case in CASES if not case.is_refused_by_vllm]


@pytest.mark.parametrize(
    ("case", "mode"), [pytest.param(case, mode, id=f"{case.name}-{mode}") for case in SUPPORTED for mode in case.modes]
)
def test_never_shorter_without_a_known_reason(case: Case, mode: Mode) -> None:
    tally = compare(case, mode, SEED, NUM_REQUESTS)
    assert set(tally.shorter) <= case.expected(mode)
    assert tally.octavo_resumed > 0


@pytest.mark.parametrize("case", [case for case in SUPPORTED if not case.vllm_layers], ids=lambda case: case.name)
def test_equal_where_everything_fits(case: Case) -> None:
    tally = compare(case, Mode.ROOM, SEED + 1, NUM_REQUESTS)
    assert tally.longer == 0
    assert tally.shorter.total() == 0 or case.expected(Mode.ROOM)


@pytest.mark.parametrize("case", [case for case in CASES if case.is_refused_by_vllm], ids=lambda case: case.name)
def test_vllm_still_refuses(case: Case) -> None:
    assert is_refused(case)
