"""Steps of a model over pages: what comes back, and what bounds and orders do not change."""

import numpy as np
import pytest
import torch
from greedy_engine import GreedyEngine

from octavo.blocks import KVCacheManager
from octavo.engine import CacheGeometry, CausalModel, ModelRunner, ScheduledSequence, StepBatch
from octavo.engine.cache import AttentionStepPlanner, attention_step, pack
from octavo.engine.cache.attention_step import cut_by_length
from octavo.engine.cache.visibility import first_visible
from octavo.engine.tiny_families import VOCAB_SIZE
from octavo.engine.tiny_models import build_tiny_model
from octavo.errors import PlanError
from octavo.planning import plan_kv_cache
from octavo.specs import ChunkedLocalAttentionSpec, FullAttentionSpec, RequestLimits, ResumePoint, SlidingWindowSpec

LIMITS = RequestLimits(max_model_len=256, max_step_tokens=256)


def random_tokens(number, seed=0):
    return torch.randint(3, VOCAB_SIZE, (number,), generator=torch.Generator().manual_seed(seed)).tolist()


def make_runner(name, **geometry):
    model = CausalModel(build_tiny_model(name), name)
    specs = model.kv_cache_specs(CacheGeometry(attention_block_size=8, **{"state_block_size": 16, **geometry}))
    return ModelRunner(model, plan_kv_cache(specs, memory_bytes=64 << 20, limits=LIMITS))


class Tables:
    """Rows for as many sequences as a test wants, each with room for the longest context."""

    def __init__(self, runner):
        self._manager = KVCacheManager(runner.config)

    def __getitem__(self, sequence):
        request = self._manager.requests.get(str(sequence))
        if request is None:
            request = self._manager.begin_request(str(sequence), [sequence])
            assert self._manager.allocate(request, LIMITS.max_model_len) is not None
        return [list(table.rows) for table in request.tables]


@pytest.mark.parametrize(
    "name", ["gemma2", "gpt_oss", "deepseek_v3", "llama4", "falcon_h1", "kimi_linear", "qwen4_exp"]
)
def test_logits_of_all_positions(name):
    plain, runner = build_tiny_model(name), make_runner(name)
    tokens, rows = random_tokens(90), Tables(runner)[0]
    with torch.inference_mode():
        expected = plain(input_ids=torch.tensor([tokens])).logits[0]

    def run(start, end):
        scheduled = ScheduledSequence(
            token_ids=tokens[start:end],
            num_computed_tokens=start,
            block_tables=rows,
            known_token_ids=tokens,
            wants_all_logits=True,
        )
        return runner.run(StepBatch(sequences=[scheduled])).all_positions[0]

    parts = [run(0, 64), run(64, 90)]
    assert torch.cat(parts).sub(expected).abs().max() < 1e-3


@pytest.mark.parametrize("name", ["gemma3", "qwen3_5"])
def test_logits_come_in_the_order_of_the_batch(name):
    runner = make_runner(name)
    tables = Tables(runner)
    lengths = [40, 1, 70, 1, 40]
    prompts = [random_tokens(32 + length, seed) for seed, length in enumerate(lengths)]

    def part(index, start, end, **kwargs):
        return ScheduledSequence(
            token_ids=prompts[index][start:end],
            num_computed_tokens=start,
            block_tables=tables[index],
            **kwargs,
        )

    together = range(len(prompts))
    runner.run(StepBatch(sequences=[part(index, 0, 32) for index in together]))
    mixed = runner.run(
        StepBatch(sequences=[part(index, 32, len(prompts[index]), wants_all_logits=index == 2) for index in together])
    )
    assert list(mixed.all_positions) == [2]
    assert mixed.all_positions[2].shape == (70, VOCAB_SIZE)
    assert torch.equal(mixed.all_positions[2][-1], mixed.last[2])
    for index in together:
        alone = runner.run(StepBatch(sequences=[part(index, 0, len(prompts[index]))]))
        assert mixed.last[index].sub(alone.last[0]).abs().max() < 1e-3


@pytest.mark.parametrize("name", ["qwen3_5", "bamba", "jamba", "glm5_next", "qwen4_exp"])
def test_states_after_drafts_are_kept_one_by_one(name):
    """Whichever draft is the last accepted, its running page is where a sequence can go on from."""
    runner = make_runner(name, num_speculative_tokens=2)
    all_tables = Tables(runner)
    tokens, after = random_tokens(40), random_tokens(1, seed=1)
    (state_group,) = (i for i, group in enumerate(runner.config.groups) if group.spec.holds_checkpoints)

    def run(sequence, token_ids, num_computed_tokens, *, running=None, num_draft_tokens=0):
        tables = all_tables[sequence]
        if running is not None:
            tables[state_group][0] = tables[state_group][running]
        scheduled = ScheduledSequence(
            token_ids=token_ids,
            num_computed_tokens=num_computed_tokens,
            block_tables=tables,
            known_token_ids=[*tokens[:num_computed_tokens], *token_ids],
            num_draft_tokens=num_draft_tokens,
        )
        return runner.run(StepBatch(sequences=[scheduled])).last[0]

    for accepted in range(3):
        run(accepted, tokens[:30], 0)
        run(accepted, tokens[30:33], 30, num_draft_tokens=2)
        known = tokens[: 31 + accepted]
        expected = run(10, [*known, *after], 0)
        assert run(accepted, after, len(known), running=accepted).sub(expected).abs().max() < 1e-3


@pytest.mark.parametrize("name", ["gemma3", "llama4", "gemma2", "deepseek_v3"])
def test_bounds_on_a_call_change_no_token(name, monkeypatch):
    model = CausalModel(build_tiny_model(name), name)
    prompts = [random_tokens(number, seed=number) for number in (130, 61, 9, 100)]
    expected = [job.generated for job in GreedyEngine(model).generate(prompts, 6)]
    monkeypatch.setattr(attention_step, "_MAX_SCORES", 100)
    monkeypatch.setattr(attention_step, "_MIN_TILE_TOKENS", 7)
    monkeypatch.setattr(attention_step, "_MIN_WINDOW_TILE_TOKENS", 5)
    monkeypatch.setattr(attention_step, "_MAX_PADDING_TOKENS", 0)
    assert [job.generated for job in GreedyEngine(model).generate(prompts, 6)] == expected


@pytest.mark.parametrize("name", ["gpt_oss", "qwen3_next", "qwen4_exp", "deepseek_v3", "gemma2"])
def test_bfloat16(name):
    model = CausalModel(build_tiny_model(name).to(torch.bfloat16), name)
    engine = GreedyEngine(model)
    jobs = engine.generate([random_tokens(50), random_tokens(20, seed=1)], 4)
    assert engine.runner.pages.pool.element_size() == 1
    assert all(torch.isfinite(logits).all() for job in jobs for logits in job.logits)


def test_a_plan_for_another_model_is_refused():
    gemma, bamba = (CausalModel(build_tiny_model(name), name) for name in ("gemma3", "bamba"))
    config = plan_kv_cache(gemma.kv_cache_specs(), memory_bytes=64 << 20, limits=LIMITS)
    with pytest.raises(PlanError, match="made for another model"):
        ModelRunner(bamba, config)


every_reach = pytest.mark.parametrize(
    "spec",
    [
        FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=4),
        SlidingWindowSpec(block_size=4, num_kv_heads=1, head_size=4, sliding_window=1),
        SlidingWindowSpec(block_size=4, num_kv_heads=1, head_size=4, sliding_window=10),
        ChunkedLocalAttentionSpec(block_size=4, num_kv_heads=1, head_size=4, attention_chunk_size=10),
    ],
)


@every_reach
@pytest.mark.parametrize("position", [0, 3, 10, 17])
def test_tiles_hold_all_that_their_queries_see_and_little_else(spec, position, monkeypatch):
    monkeypatch.setattr(attention_step, "_MIN_TILE_TOKENS", 2)
    monkeypatch.setattr(attention_step, "_MIN_WINDOW_TILE_TOKENS", 4)
    sequence = ScheduledSequence(token_ids=[1] * 60, num_computed_tokens=position, block_tables=[range(20)])
    planner = AttentionStepPlanner(0, spec, torch.float32, torch.device("cpu"))
    start = position
    for tile in planner.plan(pack(StepBatch(sequences=[sequence]))).tiles:
        queries = np.arange(position + tile.tokens.start, position + tile.tokens.stop)
        assert queries[0] == start
        start = queries[-1] + 1
        first = first_visible(spec, queries)
        first_read = start - tile.num_context_tokens
        if tile.mask is None:
            assert set(first) == {first_read}
            continue
        assert first[0] - spec.block_size < first_read <= first[0]
        assert tile.rows.tolist() == list(range(first_read // spec.block_size, (start - 1) // spec.block_size + 1))
        assert (tile.mask[0, 0] == 0).sum(-1).tolist() == (queries - first + 1).tolist()
        assert len(queries) <= 4 or len(set(first)) == 1
    assert start == position + 60


@every_reach
def test_what_a_query_sees_is_what_a_resume_needs(spec):
    for position in range(60):
        first = int(first_visible(spec, np.array([position]))[0])
        seen = {token // spec.block_size for token in range(first, position)}
        assert seen == {block for blocks in spec.needed_blocks(ResumePoint(position)) for block in blocks}


def test_neighbours_are_cut_where_padding_costs_more_than_a_call():
    assert list(cut_by_length([])) == []
    assert list(cut_by_length([320, 290, 256])) == [(0, 3)]
    assert list(cut_by_length([8000, 320, 290, 256])) == [(0, 1), (1, 4)]
    assert list(cut_by_length([112, 8000])) == [(0, 2)]
