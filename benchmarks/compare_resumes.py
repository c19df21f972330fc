"""How much of each prompt vLLM 0.32's block manager and Octavo's resume, asked the same in the same order.

    python benchmarks/compare_resumes.py [--seeds 8] [--requests 150] [--markdown]

Both get pages of equal bytes, as many of them, and the same random traffic (`resume_traffic`), with chunks that end
where either of the two must end one. At every start and restart of a request both look up before either allocates;
then each goes on from its own answer.

Where blocks are evicted, a seed is compared up to its first difference: after that the two hold different blocks, and
who resumed less may well have the right ones next time. Tokens are counted over the whole seed in any case.

modes   room       everything ever computed fits
        eviction   about one in ten of the blocks that are computed fits, and vLLM is called as its scheduler calls it
        alike      the same, but vLLM too lets go what fell out of a window at the end of the step
        policies   eviction, and each keeps the checkpoints of recurrent state that it keeps by default, and cuts
                   chunks where it must; compared over the whole seed, since they differ early

Ends with 1 if Octavo's resume is ever shorter for a reason that is not expected in the row's mode. The reasons and what
they cost are in docs/decisions/0004-resume-parity.md.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Self

os.environ.setdefault("PYTHONHASHSEED", "0")
sys.path.insert(0, str(Path(__file__).parent))
from resume_sides import OctavoSide, Side, VllmSide
from resume_traffic import Step, Traffic

from octavo.planning import KVCacheConfig, plan_kv_cache
from octavo.specs import (
    CacheDType,
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    RequestLimits,
    ResumePoint,
    SinkFullAttentionSpec,
    SlidingWindowSpec,
)

LONGEST_TOKENS = 1024
PLENTY, SCARCE = 20_000, 300
"""Blocks of 16 tokens per layer, with room and with eviction."""


class Reason(StrEnum):
    """Why Octavo resumed less."""

    INSIDE_A_BLOCK = "inside a block"
    NOT_PROMISED = "checkpoint not promised"
    EVICTED = "evicted before vLLM's"
    NEVER_STORED = "NEVER STORED"
    NOT_FOUND = "NOT FOUND"


class Mode(StrEnum):
    ROOM = "room"
    EVICTION = "eviction"
    ALIKE = "alike"
    POLICIES = "policies"


@dataclass(frozen=True, kw_only=True)
class Case:
    """Layers that both cache. Names of draft layers begin with `draft`."""

    name: str
    layers: dict[str, KVCacheSpec]
    vllm_layers: dict[str, KVCacheSpec] | None = None
    """Where vLLM's blocks are larger than Octavo's."""
    modes: tuple[Mode, ...] = (Mode.ROOM, Mode.EVICTION)
    is_refused_by_vllm: bool = False

    @property
    def has_windows(self) -> bool:
        return any(isinstance(spec, SlidingWindowSpec | ChunkedLocalAttentionSpec) for spec in self.layers.values())

    @property
    def has_state(self) -> bool:
        return any(spec.holds_checkpoints for spec in self.layers.values())

    @property
    def has_equal_plans(self) -> bool:
        """Octavo merges equal layers into one group, with larger pages; vLLM does not."""
        target = [spec for name, spec in self.layers.items() if not name.startswith("draft")]
        return self.vllm_layers is None and len(set(target)) == len(target)

    def expected(self, mode: Mode) -> set[Reason]:
        """Reasons for which Octavo may resume less."""
        reasons = set()
        if mode is Mode.EVICTION and self.has_windows:
            reasons.add(Reason.EVICTED)
        if mode is Mode.POLICIES:
            reasons |= {Reason.NOT_PROMISED, Reason.EVICTED}
        if mode is not Mode.ROOM and not self.has_equal_plans:
            reasons.add(Reason.EVICTED)
        if any(spec.block_size != 16 for spec in self.layers.values()) and self.has_state:
            reasons |= {Reason.INSIDE_A_BLOCK, Reason.EVICTED}
        return reasons


def full(block_size: int = 16) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=4)


def window(tokens: int) -> SlidingWindowSpec:
    return SlidingWindowSpec(block_size=16, num_kv_heads=1, head_size=4, sliding_window=tokens)


def chunked(tokens: int) -> ChunkedLocalAttentionSpec:
    return ChunkedLocalAttentionSpec(block_size=16, num_kv_heads=1, head_size=4, attention_chunk_size=tokens)


def state(block_size: int = 16, page_tokens: int | None = None) -> MambaSpec:
    """State whose page is as large as attention's to so many tokens."""
    numbers = 8 * (page_tokens or block_size)
    return MambaSpec(block_size=block_size, shapes=((numbers,),), dtypes=(CacheDType.BFLOAT16,))


def layers(*specs: KVCacheSpec, draft: KVCacheSpec | None = None) -> dict[str, KVCacheSpec]:
    named = {f"layers.{i}": spec for i, spec in enumerate(specs)}
    return named if draft is None else named | {"draft": draft}


_WINDOWS = (Mode.ROOM, Mode.EVICTION, Mode.ALIKE)
_STATE = (Mode.ROOM, Mode.EVICTION, Mode.POLICIES)
CASES = [
    Case(name="full", layers=layers(full())),
    Case(name="MLA", layers=layers(MLAAttentionSpec(block_size=16, head_size=8))),
    Case(name="window", layers=layers(window(128)), modes=_WINDOWS),
    Case(name="full, window", layers=layers(full(), window(128)), modes=_WINDOWS),
    Case(name="full, 3 windows", layers=layers(full(), window(64), window(128), window(250)), modes=_WINDOWS),
    Case(name="full, 5 equal windows", layers=layers(full(), *[window(128)] * 5), modes=_WINDOWS),
    Case(name="full, chunked", layers=layers(full(), chunked(128)), modes=_WINDOWS),
    Case(name="full of 48, window", layers=layers(full(48), window(100)), modes=(Mode.ROOM,)),
    Case(name="full, state", layers=layers(full(), state()), modes=_STATE),
    Case(name="full, window, state", layers=layers(full(), window(128), state()), modes=(*_STATE, Mode.ALIKE)),
    Case(name="full, draft", layers=layers(full(), draft=full())),
    Case(name="full, window, draft", layers=layers(full(), window(128), draft=full()), modes=_WINDOWS),
    Case(name="full, window, draft window", layers=layers(full(), window(128), draft=window(128)), modes=_WINDOWS),
    Case(name="full, state, draft", layers=layers(full(), state(), draft=full())),
    Case(name="blocks of 48: full, state", layers=layers(full(48), state(48)), modes=_STATE),
    Case(
        name="16 beside vLLM's 48",
        layers=layers(full(16), state(16, page_tokens=48)),
        vllm_layers=layers(full(48), state(48)),
        modes=_STATE,
    ),
    Case(
        name="full with sinks",
        layers=layers(SinkFullAttentionSpec(block_size=16, num_kv_heads=1, head_size=4, sink_len=16)),
        is_refused_by_vllm=True,
    ),
]


@dataclass(slots=True)
class Tally:
    """One row of the table."""

    requests: int = 0
    """Those that are compared, like the next three."""
    equal: int = 0
    longer: int = 0
    shorter: Counter[Reason] = field(default_factory=Counter)
    tokens_asked: int = 0
    """Of whole seeds, like the next two."""
    vllm_resumed: int = 0
    octavo_resumed: int = 0

    def __iadd__(self, other: "Tally") -> Self:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


def compare(case: Case, mode: Mode, seed: int, num_requests: int) -> Tally:
    """One seed's traffic through both."""
    per_layer = PLENTY if mode is Mode.ROOM else SCARCE
    vllm_plan = plan_for(case.vllm_layers or case.layers, per_layer)
    interval = None if mode is Mode.POLICIES else vllm_plan.resume_granularity
    plan = plan_for(case.layers, per_layer, checkpoint_interval_tokens=interval)
    vllm = VllmSide(
        vllm_plan,
        num_blocks=vllm_plan.memory_bytes
        // max(spec.page_size_bytes for spec in (case.vllm_layers or case.layers).values()),
        retention_interval=0 if mode is Mode.POLICIES else None,
        lets_windows_go_at_once=mode is Mode.ALIKE,
    )
    octavo = OctavoSide(plan)
    tally, is_alike = Tally(), True  # the two hold the same blocks, or are compared all the same
    traffic = Traffic(
        seed,
        num_requests=num_requests,
        most_tokens=LONGEST_TOKENS - 24,
        chunk_unit=vllm_plan.resume_granularity if case.has_state else 1,
    )
    for step in traffic.steps():
        if step.action in ("start", "preempt"):
            theirs, ours = look_up(vllm, step), look_up(octavo, step)
            tally.tokens_asked += octavo.requests[step.request_id].num_tokens
            tally.vllm_resumed += theirs
            tally.octavo_resumed += ours
            if is_alike:
                tally.requests += 1
                tally.equal += ours == theirs
                tally.longer += ours > theirs
                if ours < theirs:
                    tally.shorter[reason_for(octavo, step.request_id, theirs)] += 1
            is_alike &= ours == theirs or mode in (Mode.ROOM, Mode.POLICIES)
        if step.action == "end":
            vllm.end(step.request_id)
            octavo.end(step.request_id)
        elif mode is Mode.POLICIES or case.vllm_layers:
            for side in (vllm, octavo):
                advance([side], step)
        else:
            advance([vllm, octavo], step)
    return tally


def plan_for(
    specs: dict[str, KVCacheSpec], blocks_per_layer: int, *, checkpoint_interval_tokens: int | None = None
) -> KVCacheConfig:
    """A plan with as many bytes for each layer as so many blocks of 16 tokens take. Where vLLM's checkpoints are dense,
    Octavo's stand at every boundary too."""
    memory = len(specs) * blocks_per_layer * full().page_size_bytes
    largest = max(spec.page_size_bytes for spec in specs.values())
    return plan_kv_cache(
        specs,
        memory_bytes=memory // largest * largest,
        limits=RequestLimits(max_model_len=LONGEST_TOKENS, max_step_tokens=LONGEST_TOKENS),
        hash_block_size=16,
        draft_layers=[name for name in specs if name.startswith("draft")],
        checkpoint_interval_tokens=checkpoint_interval_tokens,
    )


def look_up(side: Side, step: Step) -> int:
    return side.start(step.request_id, step.tokens) if step.action == "start" else side.preempt(step.request_id)


def advance(sides: list[Side], step: Step) -> None:
    """The step's tokens: what is decoded one by one; what is prefilled in at least one chunk where it is the first."""
    request_id = step.request_id
    for token in step.tokens if step.action == "decode" else ():
        for side in sides:
            side.append(request_id, token)
        compute(sides, request_id, sides[0].num_known(request_id))
    if step.action == "prefill":
        compute(sides, request_id, step.num_tokens)
    elif step.action != "decode":
        compute(sides, request_id, max(step.num_tokens, *(side.num_computed(request_id) + 1 for side in sides)))


def compute(sides: list[Side], request_id: str, target: int) -> None:
    """Tokens up to `target`, in chunks that end where any of the sides must end one."""
    while behind := [side for side in sides if side.num_computed(request_id) < target]:
        end = min(side.next_end(request_id, target) for side in behind)
        moved = [side for side in behind if side.num_computed(request_id) < end]
        if not moved:
            return  # a chunk too short for vLLM to end it at a block
        for side in moved:
            side.compute(request_id, end)


def reason_for(octavo: OctavoSide, request_id: str, num_tokens: int) -> Reason:
    """What Octavo lacked to resume at `num_tokens`."""
    plan, request = octavo.manager.config, octavo.requests[request_id]
    if num_tokens % plan.resume_granularity:
        return Reason.INSIDE_A_BLOCK
    reasons = [
        reason
        for index, group in enumerate(plan.groups)
        for needed in group.spec.needed_blocks(ResumePoint(num_tokens))
        for block_hash in request.group_hashes[index][needed.start : needed.stop]
        for reason in why_missing(octavo, index, block_hash)
    ]
    return min(reasons, key=list(Reason).index) if reasons else Reason.NOT_FOUND


def why_missing(octavo: OctavoSide, group_idx: int, block_hash: bytes) -> Iterator[Reason]:
    if block_hash in octavo.manager.pool.indexes[group_idx]:
        return
    if block_hash in octavo.ever_stored[group_idx]:
        yield Reason.EVICTED
    elif octavo.manager.config.groups[group_idx].spec.holds_checkpoints:
        yield Reason.NOT_PROMISED
    else:
        yield Reason.NEVER_STORED


def is_refused(case: Case) -> bool:
    """Whether vLLM's manager cannot be built for these layers."""
    try:
        VllmSide(plan_for(case.layers, PLENTY), num_blocks=PLENTY)
    except TypeError as error:
        print(f"{case.name}: vLLM cannot build it: {error}")
        return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--requests", type=int, default=150, help="per seed")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()

    row = (
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |"
        if args.markdown
        else "{:28}{:10}{:>8}{:>8}{:>8}{:>8}{:>10}{:>10}{:>10}  {}"
    )
    print(
        row.format("layers", "mode", "requests", "equal", "longer", "shorter", "asked", "vLLM", "Octavo", "why shorter")
    )
    if args.markdown:
        print("|---|---|" + "---:|" * 7 + "---|")
    failures = 0
    for case in CASES:
        if args.only not in case.name:
            continue
        if case.is_refused_by_vllm:
            failures += not is_refused(case)
            continue
        for mode in case.modes:
            tally = Tally()
            for seed in range(args.seeds):
                tally += compare(case, mode, seed, args.requests)
            unexpected = set(tally.shorter) - case.expected(mode)
            failures += bool(unexpected)
            why = ", ".join(f"{count} {reason}" for reason, count in tally.shorter.items())
            print(
                row.format(
                    case.name,
                    mode,
                    tally.requests,
                    tally.equal,
                    tally.longer,
                    tally.shorter.total(),
                    tally.tokens_asked,
                    tally.vllm_resumed,
                    tally.octavo_resumed,
                    why + (" UNEXPECTED" if unexpected else ""),
                ),
                flush=True,
            )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
