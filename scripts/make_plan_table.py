"""Prints docs/plans.md: what the example models' caches need, in sheets and the way vLLM does it."""

import signal
from pathlib import Path

from octavo.errors import PlanError
from octavo.planning import ModelLayers, PlanReport, VllmPlan, plan_kv_cache, plan_like_vllm, read_model, report_plan
from octavo.specs import FullAttentionSpec, KVCacheSpecRegistry, RequestLimits
from octavo.units import format_bytes

MODELS = Path(__file__).parents[1] / "examples" / "models"
MEMORY_BYTES = 40 << 30
CONTEXT = 128 << 10
INTRODUCTION = """\
# Plans of the example models

Made by `make docs` from `examples/models`: 40 GiB for the cache of one rank, requests of 128k tokens, blocks of 16
tokens to start from, the model's own type for the cache. O is Octavo's plan, V the one that vLLM 0.32 makes of the
same layers (`octavo.planning.vllm_way`, which `make test-vllm` checks against the real vLLM).

- **Groups**: layers that share a block table; each is one table that an engine keeps and a kernel reads.
- **Block**: tokens in a block, from the smallest to the largest group. It is what a cached prefix is cut into.
- **Per token**: bytes of the pool that one more token of a long request takes.
- **Requests**: Octavo counts whole ones; vLLM counts fractions.
- **Tokens**: all that the pool holds of such requests, and O/V as a ratio.
- **Waste**: Octavo's is all memory that holds no content when the pool is as full as it gets, a last request that does
  not fit whole included. vLLM's is the part of the blocks in use that holds none.

Both reckon with one step of 8192 tokens in flight. For Mamba 2 vLLM keeps a third state per request, because its
kernels may write a checkpoint from inside a prefill; Octavo plans for two. Octavo's last, shorter request takes its
windows and states whole; vLLM's fraction of a request takes a fraction of them. So O/V can be below 1 where the plans
are equally good. "Own" is a model's own longest context, where that is less than 128k; "fits" is the longest that fits.
"""


def main() -> None:
    growing = frozenset(
        spec.kind for spec in KVCacheSpecRegistry.registered_specs() if issubclass(spec, FullAttentionSpec)
    )
    print(INTRODUCTION)
    print("| Model | Context | Layers | Groups O, V | Block O | Block V | Per token O | Per token V ", end="")
    print("| Requests O | Requests V | Tokens O | Tokens V | O/V | Waste O | Waste V |")
    print("|---|---|---|" + "---:|" * 12)
    refusals = []
    for file in sorted(MODELS.glob("*.json")):
        model = read_model(file)
        report, vllm = planned(model)
        if isinstance(vllm, PlanError):
            refusals.append(f"- {file.stem}: {vllm}")
        cells = [file.stem, context_of(report, model), layers_of(report)]
        print("| " + " | ".join([*cells, *numbers(report, vllm, growing)]) + " |")
    if refusals:
        print("\nvLLM's plan is missing where vLLM refuses to start:\n")
        print("\n".join(refusals))


def planned(model: ModelLayers) -> tuple[PlanReport, VllmPlan | PlanError]:
    limits = RequestLimits(
        max_model_len=min(CONTEXT, model.max_model_len or CONTEXT), max_encoder_tokens=model.max_encoder_tokens
    )
    config = plan_kv_cache(model.layers, memory_bytes=MEMORY_BYTES, limits=limits, shorten_context=True)
    report = report_plan(config, model=model.architecture)
    try:
        return report, plan_like_vllm(
            model.layers,
            memory_bytes=MEMORY_BYTES,
            limits=config.limits,
            spare_states=int(model.has_mamba2_state),
        )
    except PlanError as refusal:
        return report, refusal


def context_of(report: PlanReport, model: ModelLayers) -> str:
    if report.context == CONTEXT:
        return "128k"
    return f"{report.context:,} ({'own' if report.context == model.max_model_len else 'fits'})"


def layers_of(report: PlanReport) -> str:
    return ", ".join(f"{group.layers} {group.kind}" for group in report.groups)


def numbers(report: PlanReport, vllm: VllmPlan | PlanError, growing: frozenset[str]) -> list[str]:
    """Groups, block sizes, bytes per token, requests, tokens and waste, each for Octavo and for vLLM."""
    ours_per_token = sum(g.padded_page_bytes / g.block_size for g in report.groups if g.grows_with_context)
    if isinstance(vllm, PlanError):
        groups, block, per_token, requests, tokens, ratio, waste = ["-"] * 7
    else:
        groups = str(len(vllm.groups))
        block = range_of([group.block_size for group in vllm.groups])
        per_token = bytes_or_none(sum(vllm.bytes_per_block / g.block_size for g in vllm.groups if g.kind in growing))
        requests = f"{vllm.requests_at_once:,.2f}"
        tokens = f"{vllm.tokens:,}"
        ratio = f"{report.tokens / vllm.tokens:.3f}"
        waste = f"{vllm.waste_fraction:.2%}"
    return [
        f"{len(report.groups)}, {groups}",
        range_of([group.block_size for group in report.groups]),
        block,
        bytes_or_none(ours_per_token),
        per_token,
        f"{report.requests_at_once:,}",
        requests,
        f"{report.tokens:,}",
        tokens,
        ratio,
        f"{report.waste_fraction:.2%}",
        waste,
    ]


def range_of(sizes: list[int]) -> str:
    return f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"


def bytes_or_none(num_bytes: float) -> str:
    return format_bytes(num_bytes) if num_bytes else "none"


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
