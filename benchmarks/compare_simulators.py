"""The same trace through `octavo.sim` and through kvcache-simulator: equal hits on full attention, and not on hybrids.

    pip install kvcache-simulator==0.1.3        # in an environment of its own
    python benchmarks/compare_simulators.py TRACE --peer ITS_COMMAND [--requests 3000]

The peer keeps a trie of blocks and counts bytes per token. So here one cache of so many blocks is compared: Octavo's
device pool with nothing below it, requests one at a time, full blocks only, the last half of the requests counted, as
the peer does. TRACE is one of hash ids in blocks of 512 tokens, as Mooncake's.

With full attention the tokens hit must be equal. For hybrids both get the same bytes: the peer's size of a block times
its number of blocks. Octavo's answer then follows from what a resume needs of each group.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octavo.planning import plan_kv_cache, read_model
from octavo.sim import SimConfig, SimulatedEngine, Speeds, Trace, TraceRequest, read_trace
from octavo.specs import KVCacheSpec, RequestLimits

MODELS = Path(__file__).parents[1] / "examples/models"
FULL = "llama-3.1-8b"
HYBRIDS = ("gemma-4-26b-a4b", "qwen3.5-27b")
"""Both name them alike."""
BLOCK = 512
INSTANT = Speeds(prefill_tokens_per_s=1e12, step_s=1e-6)
APART_S = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--peer", required=True, help="its command")
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--gib", type=float, nargs="+", default=[40, 80, 160, 320])
    args = parser.parse_args()
    requests = [only_full_blocks(request) for request in read_trace(args.trace, most_requests=args.requests).requests]
    known = {line.split("\t")[0] for line in run([args.peer, "list-models"]).splitlines()}
    with tempfile.TemporaryDirectory() as folder:
        whole_blocks = Path(folder) / "trace.jsonl"
        whole_blocks.write_text("".join(map(line_for_peer, requests)))
        print(f"{'model':18}{'GiB':>7}{'blocks':>8}{'peer, hits':>12}{'octavo':>12}{'':>3}")
        for model in (FULL, *HYBRIDS):
            if model not in known:
                sys.exit(f"the peer does not know {model}: {', '.join(sorted(known))}")
            compare(model, ask_peer(args, model, whole_blocks), requests, is_exact=model == FULL)


def only_full_blocks(request: TraceRequest) -> TraceRequest:
    """One token more than the full blocks, so that all of them can be resumed."""
    num_blocks = max(1, request.num_prompt_tokens // BLOCK)
    return TraceRequest(
        arrival_s=request.arrival_s,
        num_prompt_tokens=num_blocks * BLOCK + 1,
        num_output_tokens=1,
        block_ids=np.append(request.block_ids[:num_blocks], np.int32(0)),
        block_tokens=BLOCK,
        knows_output=False,
    )


def line_for_peer(request: TraceRequest) -> str:
    ids = request.block_ids[:-1].tolist()
    return json.dumps({"input_length": len(ids) * BLOCK, "hash_ids": ids, "block_size": BLOCK}) + "\n"


def ask_peer(args: argparse.Namespace, model: str, trace: Path) -> dict[str, Any]:
    budgets = ",".join(map(str, args.gib))
    command = [args.peer, "run", "--trace", str(trace), "--model", model, "--budgets-gib", budgets]
    answer: dict[str, Any] = json.loads(run([*command, "--policies", "lru", "--format", "json", "--backend", "python"]))
    return answer


def run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def compare(model: str, answer: dict[str, Any], requests: Sequence[TraceRequest], *, is_exact: bool) -> None:
    layers = read_model(MODELS / f"{model}.json", block_size=BLOCK).layers
    for point in answer["points"]:
        blocks, theirs = point["cacheBlocks"], point["results"]["lru"]
        num_bytes = round(blocks * answer["metadata"]["bytesPerBlock"])
        hits = serve(layers, requests, blocks=blocks if is_exact else None, num_bytes=num_bytes)
        share = hits / theirs["totalTokens"]
        verdict = ("equal" if hits == theirs["hitTokens"] else "NOT EQUAL") if is_exact else ""
        print(f"{model:18}{point['gib']:7g}{blocks:8,}{theirs['hitRate']:12.2%}{share:12.2%}   {verdict}", flush=True)


def serve(
    layers: dict[str, KVCacheSpec], requests: Sequence[TraceRequest], *, blocks: int | None, num_bytes: int
) -> int:
    """Tokens that the last half of the requests resumed. With `blocks`: a pool of one page more, for the last token."""
    trace = Trace(requests=requests, block_tokens=BLOCK)
    limits = RequestLimits(max_model_len=trace.longest + 1, max_step_tokens=trace.longest)
    if blocks is not None:
        num_bytes = (blocks + 1) * sum(layer.page_size_bytes for layer in layers.values())
    plan = plan_kv_cache(layers, memory_bytes=num_bytes, limits=limits)
    if blocks is not None and plan.page_classes[0].num_blocks != blocks + 1:
        sys.exit(f"the plan has {plan.page_classes[0].num_blocks} blocks, not {blocks + 1}")
    engine = SimulatedEngine(SimConfig(plan=plan, speeds=INSTANT))
    for number, request in enumerate(requests):
        engine.run_until(number * APART_S)
        engine.submit(number, request)
    engine.finish()
    return sum(outcome.num_resumed_tokens for outcome in engine.outcomes[len(requests) // 2 :])


if __name__ == "__main__":
    main()
