"""The time to the first token where a long prefix is resumed: from the device, memory, disk or a store, or computed.

    python benchmarks/bench_resume_ttft.py [--prefix 2000] [--question 24] [--rounds 5] [--threads 2] [--kinds full]
                                           [--store s3 redis] [--latency-ms 0 20 50]

Seeded models of about 30M parameters, of three kinds, in fp32. Each medium has an engine of its own, which has computed
the prefix once. In each round all are asked the same new question about it, in turn; before that, those with offloading
lose what is on the device. The best round counts. All answers must be equal, and what is resumed must come from where
it should: it is loaded even where computing it would be quicker. The device and memory hold everything; the disk's
reads bypass the page cache where its file system lets them. A ratio is the time of computing to the time of resuming.
`--store`: a real server that a relay puts so far away; the lookup is in the time. Each round also asks for as long a
prompt that nobody knows: the ratio is to the engine without offloading in the same round, so it tells what looking
costs; the middle of all rounds counts. No engine stores while another one is asked.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from bench_stores import STARTS
from delaying_relay import DelayingRelay
from engine_models import KINDS, SHAPE, save_model

from octavo.blocks import KVCacheManager
from octavo.engine import Engine, EngineConfig, ModelRunner, SamplingParams, offload_maker
from octavo.offload import OffloadConfig, OffloadScheduler

COMPUTED, DEVICE = "computed", "device"
NEW_TOKENS = 8
FLUSH_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """An engine, and what moves its blocks to slower media."""

    engine: Engine
    offload: OffloadScheduler | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question's answer."""

    first_token_s: float
    tokens: Sequence[int]
    cached: Mapping[str, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", type=int, default=2000)
    parser.add_argument("--question", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--store", nargs="*", default=[], choices=["s3", "redis"])
    parser.add_argument("--latency-ms", type=float, nargs="*", default=[0, 20, 50])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with ExitStack() as stack:
        stores = start_stores(stack, args)
        for kind in args.kinds:
            with tempfile.TemporaryDirectory() as folder:
                run_kind(kind, Path(folder), stores, args)


def start_stores(stack: ExitStack, args: argparse.Namespace) -> dict[str, Mapping[str, Any]]:
    """Settings, by name."""
    stores: dict[str, Mapping[str, Any]] = {}
    for kind in args.store:
        place = stack.enter_context(STARTS[kind]())
        for latency_ms in args.latency_ms:
            port = stack.enter_context(DelayingRelay(place.port, latency_ms / 1000)).port if latency_ms else place.port
            stores[f"{kind}, {latency_ms:g} ms away"] = place.at_port(port).settings
    return stores


def run_kind(kind: str, folder: Path, stores: Mapping[str, Mapping[str, Any]], args: argparse.Namespace) -> None:
    chooser = random.Random(0)

    def draw(num_tokens: int) -> list[int]:
        return [chooser.randrange(3, SHAPE["vocab_size"]) for _ in range(num_tokens)]

    prefix = draw(args.prefix)
    save_model(kind, folder / "model")
    sides = make_sides(folder, stores, args)
    for side in sides.values():
        ask_beyond_device(side, prefix)
    best: dict[str, Asked] = {}
    missed: dict[str, list[float]] = {medium: [] for medium in sides}
    for _ in range(args.rounds):
        question = draw(args.question)
        answers = {medium: ask_beyond_device(side, prefix + question) for medium, side in sides.items()}
        check(answers, args.prefix)
        for medium, asked in answers.items():
            best[medium] = min(best.get(medium, asked), asked, key=lambda one: one.first_token_s)
        unknown = draw(len(prefix) + len(question))
        for medium, side in sides.items():
            missed[medium].append(ask_beyond_device(side, unknown).first_token_s)
            unknown[0] += 1  # what one has stored another one would find
    for side in sides.values():
        side.engine.close()
    print_table(kind, best, missed)


def make_sides(folder: Path, stores: Mapping[str, Mapping[str, Any]], args: argparse.Namespace) -> dict[str, Side]:
    """By medium."""
    tiers = [{"type": "disk", "path": str(folder / "disk"), "size": "1GiB"}]
    return {
        COMPUTED: make_side(folder / "model", args, None, enable_prefix_caching=False),
        DEVICE: make_side(folder / "model", args, None),
        "memory": make_side(folder / "model", args, {"memory": "256MiB"}),
        "disk": make_side(folder / "model", args, {"staging": "128MiB", "tiers": tiers}),
    } | {
        name: make_side(folder / "model", args, {"staging": "128MiB", "shared": settings})
        for name, settings in stores.items()
    }


def make_side(model: Path, args: argparse.Namespace, offload: Mapping[str, Any] | None, **options: Any) -> Side:
    config = EngineConfig(
        model=model,
        device=args.device,
        device_memory_bytes=256 << 20,
        max_model_len=args.prefix + args.question + 2 * NEW_TOKENS,
        max_num_seqs=4,
        **options,
    )
    if offload is None:
        return Side(engine=Engine.from_config(config), offload=None)
    made = []

    def make_offload(manager: KVCacheManager, runner: ModelRunner) -> OffloadScheduler:
        made.append(offload_maker(config, OffloadConfig.from_mapping({**offload, "loads": "always"}))(manager, runner))
        return made[0]

    return Side(engine=Engine.from_config(config, make_offload=make_offload), offload=made[0])


def ask_beyond_device(side: Side, prompt: Sequence[int]) -> Asked:
    """With offloading, the device forgets all before, and what is computed is stored afterwards."""
    if side.offload is None:
        return ask(side.engine, prompt)
    side.engine.manager.reset_prefix_cache()
    asked = ask(side.engine, prompt)
    if not side.offload.flush(FLUSH_TIMEOUT_S, time.monotonic):
        sys.exit("stores do not end")
    return asked


def ask(engine: Engine, prompt: Sequence[int]) -> Asked:
    first_token_s = 0.0
    tokens: list[int] = []
    cached: Mapping[str, int] = {}
    began = time.perf_counter()
    engine.add_request("question", prompt, SamplingParams(max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True))
    while engine.has_unfinished:
        for output in engine.step():
            first_token_s = first_token_s or time.perf_counter() - began
            tokens += output.token_ids
            cached = output.cached_tokens
    return Asked(first_token_s=first_token_s, tokens=tokens, cached=cached)


def check(answers: Mapping[str, Asked], num_prefix: int) -> None:
    for medium, asked in answers.items():
        if asked.tokens != answers[COMPUTED].tokens:
            sys.exit(f"{medium}: {asked.tokens} is not what is computed, {answers[COMPUTED].tokens}")
        kind = {"s3": "objects"}.get(medium.partition(",")[0], medium.partition(",")[0])
        wanted = set() if medium == COMPUTED else {kind}
        if set(asked.cached) != wanted or (wanted and asked.cached[kind] < 0.9 * num_prefix):
            sys.exit(f"{medium}: {dict(asked.cached)} tokens of {num_prefix:,} were resumed")


def print_table(kind: str, best: Mapping[str, Asked], missed: Mapping[str, Sequence[float]]) -> None:
    computed = best[COMPUTED].first_token_s
    print(f"{kind + ' (' + KINDS[kind][0] + ')':26}{'tokens resumed':>16}{'ms':>10}{'computing x':>14}", end="")
    print(f"{'unknown, ms':>14}{'device x':>10}")
    for medium, asked in best.items():
        resumed = sum(asked.cached.values())
        print(
            f"{medium:26}{resumed:16,}{asked.first_token_s * 1e3:10.1f}{computed / asked.first_token_s:14.1f}", end=""
        )
        ratios = [here / device for here, device in zip(missed[medium], missed[DEVICE], strict=True)]
        print(f"{median(missed[medium]) * 1e3:14.1f}{median(ratios):10.3f}")
    print(flush=True)


if __name__ == "__main__":
    main()
