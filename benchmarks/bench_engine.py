"""Prefill and decode beside Hugging Face: `generate` one by one, in a static batch, and continuous batching.

    python benchmarks/bench_engine.py [--batch 16] [--prompt 256] [--tokens 32] [--rounds 3] [--threads 2]
                                      [--processor-time]

Seeded models of about 30M parameters, of three kinds, in fp32. Each side answers the same prompts in turn, round after
round, once with one token and once with more; the best of each counts, and what they differ by is decoding. Nothing is
cached between two answers. Prompts are of one length, which costs a static batch nothing, or of many, to the longest of
which it pads. Ratios are ours to theirs: above 1 the engine is quicker. The last row is the limit of all that run the
same model: its matrix products alone, of all tokens at once. On a machine that others use, processor time with one
thread is disturbed less.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from engine_models import KINDS, SHAPE, save_model
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

from octavo.engine import Engine, EngineConfig, SamplingParams

ONE_BY_ONE = 4
"""Prompts of a batch that are enough to time, where each is answered alone."""
SPREADS = {"one length": 0.0, "many lengths": 0.75}
"""How far lengths lie from the mean, at most, as a share of it."""

Prompts = Sequence[list[int]]
Side = Callable[[Prompts, int], None]
"""Answers prompts with so many tokens each."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--processor-time", action="store_true", help="instead of the time that passes")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for kind, (family, _) in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            save_model(kind, Path(folder))
            sides = sides_of(Path(folder), args)
            for name, spread in SPREADS.items():
                prompts = make_prompts(args.batch, args.prompt, spread)
                print_table(f"{kind} ({family}), {name}", compare(sides, prompts, args), prompts, args.tokens)


def make_prompts(number: int, mean_length: int, spread: float) -> Prompts:
    """Their lengths are evenly spread."""
    chooser = random.Random(0)
    shares = [1 + spread * (2 * (place + 0.5) / number - 1) for place in range(number)]
    chooser.shuffle(shares)
    return [[chooser.randrange(3, SHAPE["vocab_size"]) for _ in range(round(mean_length * share))] for share in shares]


def compare(sides: dict[str, Side], prompts: Prompts, args: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """By side, the least seconds for one token of each answer, and for all."""
    best = {name: measure(side, prompts, args) for name, side in sides.items()}  # warms up
    for _ in range(args.rounds):
        for name, side in sides.items():
            (first, everything), least = measure(side, prompts, args), best[name]
            best[name] = min(least[0], first), min(least[1], everything)
    return best


def sides_of(folder: Path, args: argparse.Namespace) -> dict[str, Side]:
    """The engine, and whatever of Hugging Face runs the model."""
    sides = {
        "octavo": engine_side(folder, args),
        "HF one by one": one_by_one_side(folder),
        "HF static batch": static_side(folder),
    }
    continuous = continuous_side(folder)
    try:
        continuous([[5, 6, 7]], 2)
    except (RuntimeError, ValueError, NotImplementedError, AttributeError, TypeError) as error:
        print(f"HF continuous batching does not run it: {str(error).splitlines()[0][:100]}")
    else:
        sides["HF continuous"] = continuous
    return {**sides, "its products alone": products_side(folder)}


def engine_side(folder: Path, args: argparse.Namespace) -> Side:
    engine = Engine.from_config(
        EngineConfig(
            model=folder,
            device_memory_bytes=512 << 20,
            max_model_len=2 * (args.prompt + args.tokens),
            max_num_seqs=args.batch,
            enable_prefix_caching=False,
        )
    )

    def answer(prompts: Prompts, num_tokens: int) -> None:
        params = SamplingParams(max_tokens=num_tokens, temperature=0, ignore_eos=True)
        for number, prompt in enumerate(prompts):
            engine.add_request(str(number), prompt, params)
        while engine.has_unfinished:
            engine.step()

    return answer


def plain_model(folder: Path, attention: str = "sdpa") -> Any:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
    model.generation_config.eos_token_id = None
    return model.eval()


def one_by_one_side(folder: Path) -> Side:
    """It answers the first few, which stand for all."""
    static = static_side(folder)

    def answer(prompts: Prompts, num_tokens: int) -> None:
        for prompt in prompts[:ONE_BY_ONE]:
            static([prompt], num_tokens)

    return answer


def static_side(folder: Path) -> Side:
    model = plain_model(folder)

    def answer(prompts: Prompts, num_tokens: int) -> None:
        longest = max(map(len, prompts))
        padded = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
        is_ragged = any(len(prompt) < longest for prompt in prompts)  # without a mask it is quicker
        mask = {"attention_mask": (padded > 0).long()} if is_ragged else {}
        with torch.inference_mode():
            model.generate(padded, max_new_tokens=num_tokens, do_sample=False, pad_token_id=0, **mask)

    return answer


def continuous_side(folder: Path) -> Side:
    model = plain_model(folder)

    def answer(prompts: Prompts, num_tokens: int) -> None:
        longest = max(map(len, prompts)) + num_tokens
        answers = model.generate_batch(
            [list(prompt) for prompt in prompts],
            generation_config=GenerationConfig(max_new_tokens=num_tokens, do_sample=False, eos_token_id=-1),
            continuous_batching_config=ContinuousBatchingConfig(
                page_size=16, num_blocks=len(prompts) * (longest // 16 + 2), max_batch_tokens=2048
            ),
            warmup=False,
        )
        if [len(of_one.generated_tokens) for of_one in answers.values()] != [num_tokens] * len(prompts):
            raise RuntimeError("it has not answered everything")

    return answer


def products_side(folder: Path) -> Side:
    """What no one can do without who computes the model layer by layer."""
    layers = [module.weight for module in plain_model(folder).modules() if isinstance(module, torch.nn.Linear)]

    def multiply(num_rows: int, num_logits: int) -> None:
        for weight in layers:
            rows = num_logits if len(weight) == SHAPE["vocab_size"] else num_rows
            torch.nn.functional.linear(torch.ones(rows, weight.shape[1]), weight)

    def answer(prompts: Prompts, num_tokens: int) -> None:
        with torch.inference_mode():
            multiply(sum(map(len, prompts)), len(prompts))
            for _ in range(num_tokens - 1):
                multiply(len(prompts), len(prompts))

    return answer


def measure(side: Side, prompts: Prompts, args: argparse.Namespace) -> tuple[float, float]:
    """Seconds for one token of each answer, and for all."""
    clock = time.process_time if args.processor_time else time.perf_counter
    began = clock()
    side(prompts, 1)
    first = clock()
    side(prompts, 1 + args.tokens)
    return first - began, clock() - first


def print_table(title: str, best: dict[str, tuple[float, float]], prompts: Prompts, num_tokens: int) -> None:
    rates = {}
    for name, (first, whole) in best.items():
        answered = prompts[:ONE_BY_ONE] if name == "HF one by one" else prompts
        rates[name] = sum(map(len, answered)) / first, len(answered) * num_tokens / (whole - first)
    own_prefill, own_decode = rates["octavo"]
    print(f"{title:40}{'prefill tokens/s':>18}{'octavo x':>10}{'decode tokens/s':>18}{'octavo x':>10}")
    for name, (prefill, decode) in rates.items():
        print(f"{name:40}{prefill:18,.0f}{own_prefill / prefill:10.2f}{decode:18,.0f}{own_decode / decode:10.2f}")
    print(flush=True)


if __name__ == "__main__":
    main()
