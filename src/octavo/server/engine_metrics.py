"""What `/metrics` tells of the engine and its pool."""

from octavo.engine import EngineSnapshot
from octavo.http import ByLabels, Metric, counter, gauge


def _sheets(seen: EngineSnapshot) -> dict[str, float]:
    return {"free": seen.free_sheets, "leased": seen.num_sheets - seen.free_sheets}


def _pages(seen: EngineSnapshot) -> ByLabels:
    for index, pages in enumerate(seen.classes):
        by_state = {"held": pages.held_pages, "cached": pages.cached_pages, "free": pages.free_pages}
        yield from (((str(index), state), float(number)) for state, number in by_state.items())


def _blocks(seen: EngineSnapshot) -> ByLabels:
    for group in seen.groups:
        by_state = {"held": group.held_blocks, "indexed": group.indexed_blocks}
        yield from (((str(group.group_idx), group.kind, state), float(number)) for state, number in by_state.items())


def _missed(seen: EngineSnapshot) -> dict[str, float]:
    return {str(group): tokens for group, tokens in seen.counters.tokens_missed_by_group.items()}


ENGINE_METRICS: tuple[Metric[EngineSnapshot], ...] = (
    gauge("octavo_requests_running", "Sequences that are being computed.", lambda seen: seen.num_running),
    gauge("octavo_requests_waiting", "Sequences that wait for their turn.", lambda seen: seen.num_waiting),
    counter("octavo_requests_total", "Requests that came in.", lambda seen: seen.counters.requests),
    counter("octavo_prompt_tokens_total", "Tokens of prompts that came in.", lambda seen: seen.counters.prompt_tokens),
    counter(
        "octavo_prefill_tokens_computed_total",
        "Prompt tokens that were computed, also again after a preemption.",
        lambda seen: seen.counters.prefill_tokens_computed,
    ),
    counter("octavo_output_tokens_total", "Tokens that were sampled.", lambda seen: seen.counters.output_tokens),
    counter(
        "octavo_tokens_asked_total",
        "Tokens of sequences when they started: what might have been resumed.",
        lambda seen: seen.counters.tokens_asked,
    ),
    counter(
        "octavo_tokens_resumed_total",
        "Tokens that were resumed, by the medium from which they came.",
        lambda seen: seen.counters.tokens_resumed,
        "medium",
    ),
    counter(
        "octavo_tokens_missed_total",
        "Tokens that were not resumed, by the group that lacked something.",
        _missed,
        "group",
    ),
    counter(
        "octavo_choices_finished_total",
        "Outputs that ended, by reason.",
        lambda seen: seen.counters.choices_finished,
        "reason",
    ),
    counter(
        "octavo_preemptions_total",
        "Times that a sequence gave up its pages for others.",
        lambda seen: seen.counters.preemptions,
    ),
    gauge("octavo_engine_stalled", "1 while no request gets further.", lambda seen: float(seen.is_stalled)),
    counter("octavo_engine_stalls_total", "Times that no request got further.", lambda seen: seen.counters.stalls),
    counter("octavo_steps_total", "Steps that computed something.", lambda seen: seen.counters.steps),
    counter("octavo_failed_steps_total", "Steps that failed.", lambda seen: seen.counters.failed_steps),
    counter("octavo_forward_seconds_total", "Time in the model.", lambda seen: seen.counters.forward_s),
    counter("octavo_step_seconds_total", "Time in steps, the model included.", lambda seen: seen.counters.step_s),
    gauge("octavo_pool_sheet_bytes", "Size of a sheet.", lambda seen: seen.sheet_bytes),
    gauge("octavo_pool_sheets", "Sheets of the pool: free, or leased to a page class.", _sheets, "state"),
    gauge(
        "octavo_pool_pages",
        "Pages of leased sheets: held by requests, cached for later ones, or free.",
        _pages,
        "page_class",
        "state",
    ),
    gauge(
        "octavo_pool_blocks",
        "Blocks in the pool: held by requests, or indexed so that later ones find them.",
        _blocks,
        "group",
        "kind",
        "state",
    ),
)
