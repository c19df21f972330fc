"""What the search for a resume point costs: how many blocks it asks for."""

from dataclasses import dataclass, field

from hypothesis import given

from octavo.specs import FullAttentionSpec, GroupAvailability, Resume, ResumePoint, SlidingWindowSpec, longest_resume
from octavo.testing import strategies
from rigs.resume_questions import SMALL_BLOCKS, attention, mamba, questions, thorough

FULL = attention(FullAttentionSpec, 16)


@dataclass
class CountingBlocks:
    """A set of blocks that counts what it is asked."""

    present: frozenset[int]
    first_missing_calls: int = 0
    available_until_calls: int = 0
    asked: list[int] = field(default_factory=list)

    def first_missing(self, start, stop):
        if start < stop:
            self.first_missing_calls += 1
        for block in range(start, stop):
            self.asked.append(block)
            if block not in self.present:
                return block
        return stop

    def available_until(self, stop):
        self.available_until_calls += 1
        return strategies.BlockSet(self.present).available_until(stop)


LONG = 131_072


def count(*groups, num_tokens=LONG):
    counted = [CountingBlocks(frozenset(present)) for _, present in groups]
    found = longest_resume(
        [GroupAvailability(spec=spec, blocks=c) for (spec, _), c in zip(groups, counted, strict=True)],
        ResumePoint(num_tokens=num_tokens),
    )
    return found, counted


def test_an_empty_window_costs_one_probe_for_each_window():
    window = attention(SlidingWindowSpec, 16, sliding_window=1024)
    found, (blocks,) = count((window, ()))
    assert found == Resume(num_tokens=0, limited_by=0)
    assert blocks.first_missing_calls <= LONG // 1024 + 1
    assert len(blocks.asked) <= LONG // 1024 + 1


def test_an_empty_window_beside_a_full_group_costs_no_more():
    window = attention(SlidingWindowSpec, 16, sliding_window=1024)
    _, (full, windowed) = count((FULL, range(LONG // 16)), (window, ()))
    assert len(windowed.asked) <= LONG // 1024 + 1
    assert full.first_missing_calls == 1
    assert len(full.asked) == len(set(full.asked))


def test_an_empty_full_group_costs_one_probe():
    found, (blocks,) = count((FULL, ()))
    assert found.num_tokens == 0
    assert blocks.asked == [0]


def test_checkpoints_are_found_without_looking_at_each_block():
    found, (full, states) = count((FULL, range(LONG // 16)), (mamba(16), {511}))
    assert found == Resume(num_tokens=8192, limited_by=1)
    assert states.first_missing_calls <= 2
    assert states.available_until_calls == 1
    assert full.available_until_calls == 0


def test_no_checkpoint_costs_one_probe():
    found, (states,) = count((mamba(16), ()))
    assert found == Resume(num_tokens=0, limited_by=0)
    assert (states.first_missing_calls, states.available_until_calls) == (1, 1)


@thorough
@given(question=questions(SMALL_BLOCKS, max_boundaries=12))
def test_no_block_is_asked_for_twice(question):
    groups, request, step = question
    counted = [group._replace(blocks=CountingBlocks(group.blocks.present)) for group in groups]
    longest_resume(counted, request, granularity=step)
    for group in counted:
        assert len(group.blocks.asked) == len(set(group.blocks.asked)), group.spec


@given(question=questions(SMALL_BLOCKS, max_boundaries=12))
def test_available_until_is_asked_only_where_the_last_block_is_always_needed(question):
    groups, request, step = question
    counted = [group._replace(blocks=CountingBlocks(group.blocks.present)) for group in groups]
    longest_resume(counted, request, granularity=step)
    assert all(group.spec.always_needs_last_block for group in counted if group.blocks.available_until_calls)
