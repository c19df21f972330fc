"""The engines of `octavo vllm-check`: each in a process of its own, so that it has the device to itself.

    without the plug-in     cold, vLLM's own hits
    with it                 storing, vLLM's own hits, from memory
    with it, again          from disk, if there is one

For the passes without hits on the device, its cache is forgotten before each prompt. Prompts are served one at a time,
as other requests in a batch change how sums are rounded.
"""

import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import msgspec

from octavo.cli.commands.vllm_check.causes import explain_cause
from octavo.cli.process_group import own_interpreter, run_in_group
from octavo.errors import InputError, MissingPackageError
from octavo.extras import is_installed

_MARK = "OCTAVO-CHECK "
_NO_DISK = re.compile(r"Octavo keeps nothing below memory: (.+)")
_FIRST_TOKEN = 100
"""The least token id in use: those below are often special."""
_STATS_S = 1.0
"""vLLM hears of the tiers at most this long after something happened there."""
_WARM_UP_TOKENS = 8
"""Less than a block, so that none of it is kept, and more than one token, which vLLM's CPU kernels do not take."""


class CheckTask(msgspec.Struct, frozen=True, kw_only=True):
    """The prompts of one engine, and how to serve them."""

    model: str
    num_prompts: int
    shared_tokens: int
    own_tokens: int
    output_tokens: int
    seed: int
    vllm_args: dict[str, Any]
    extra_config: dict[str, Any] | None
    """The configuration of the plug-in; None without it."""


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """One pass over all prompts."""

    answers: list[list[int]]
    cached_tokens: int
    """Prompt tokens that were not computed."""
    loaded_tokens: int
    """The part of these that the plug-in loaded."""
    loaded_bytes: int
    first_token_s: list[float]
    chunks_from_disk: int = 0
    """Chunks that were read from the disk. They are in memory then, from where the next prompt loads them."""
    why_no_disk: str = ""
    """Why the plug-in keeps nothing on the disk, in its words; empty if it does."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """All passes, by name."""

    prompt_tokens: int
    passes: dict[str, Pass]


COLD, DEVICE = "cold", "vLLM's own hits"
STORING, STILL_DEVICE = "Octavo stores", "vLLM's own hits, beside Octavo"
MEMORY, DISK = "Octavo memory", "Octavo disk"
_FORGETS_DEVICE = (COLD, MEMORY, DISK)


def require_vllm() -> None:
    """Raises InputError if there is no vLLM, or one that the plug-in does not know."""
    if not is_installed("vllm"):
        raise MissingPackageError(
            "vLLM is not installed here: pip install 'octavo[vllm]', or use the environment that has it"
        )
    from octavo.vllm_plugin import load_adapter  # which imports vLLM

    load_adapter()


def run_check(task: CheckTask, *, has_disk: bool, tell: Callable[[str], None]) -> Measured:
    """Runs the check. `tell` gets each step as it begins: each engine takes a while to start."""
    tell("vLLM without the plug-in ...")
    passes = _in_own_process(msgspec.structs.replace(task, extra_config=None), (COLD, DEVICE))
    tell("vLLM with the plug-in ...")
    passes |= _in_own_process(task, (STORING, STILL_DEVICE, MEMORY))
    if has_disk:
        tell("vLLM with the plug-in, in a second process ...")
        passes |= _in_own_process(task, (DISK,))
    return Measured(prompt_tokens=task.num_prompts * (task.shared_tokens + task.own_tokens), passes=passes)


def _in_own_process(task: CheckTask, names: Sequence[str]) -> dict[str, Pass]:
    arguments = msgspec.json.encode((task, list(names))).decode()
    said, errors = run_in_group([*own_interpreter(), "-m", __name__, arguments])
    for line in said.splitlines():
        if line.startswith(_MARK):
            passes = msgspec.json.decode(line[len(_MARK) :], type=dict[str, Pass])
            why = _NO_DISK.search(said + errors)
            return {n: msgspec.structs.replace(p, why_no_disk=why[1] if why else "") for n, p in passes.items()}
    what = "with Octavo's plug-in" if task.extra_config is not None else "without the plug-in"
    log = said + errors
    with NamedTemporaryFile("w", prefix="octavo-vllm-check-", suffix=".log", delete=False) as file:
        file.write(log)
    raise InputError(f"vLLM did not serve the model {what}: {explain_cause(log)} (all it said is in {file.name})")


def _serve(task: CheckTask, names: Sequence[str]) -> dict[str, Pass]:
    """Serves the prompts, in the engine's process."""
    from vllm import LLM  # this process is for nothing else

    arguments: dict[str, Any] = {
        "enable_prefix_caching": True,
        "disable_log_stats": False,
        "seed": 0,
        "skip_tokenizer_init": has_no_tokenizer(Path(task.model)),  # models with images do not start without theirs
        **task.vllm_args,
    }
    if task.extra_config is not None:
        arguments["kv_transfer_config"] = {
            "kv_connector": "OffloadingConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "spec_name": "OctavoOffloadingSpec",
                "spec_module_path": "octavo.vllm_plugin",
                "loads": "always",  # all that is stored is to be compared
                **task.extra_config,
            },
        }
    llm = LLM(model=task.model, **arguments)
    prompts = _make_prompts(task, llm.model_config.get_vocab_size())
    passes = {}
    for name in names:
        _generate(llm, prompts[0][:_WARM_UP_TOKENS], 2)  # also lets vLLM store, which it does in the next step
        passes[name] = _serve_all(llm, prompts, task.output_tokens, forgets_device=name in _FORGETS_DEVICE)
    time.sleep(_STATS_S)
    _generate(llm, prompts[0][:_WARM_UP_TOKENS], 2)
    if DISK in passes:
        passes[DISK] = msgspec.structs.replace(passes[DISK], chunks_from_disk=_read_from_disk())
    return passes


def has_no_tokenizer(model: Path) -> bool:
    """False also for a name."""
    return model.is_dir() and not any(next(model.glob(name), None) for name in ("*token*", "vocab*", "tekken*"))


def _make_prompts(task: CheckTask, vocab_size: int) -> list[list[int]]:
    source = random.Random(task.seed)  # noqa: S311 - token ids

    def tokens(count: int) -> list[int]:
        return [source.randrange(min(_FIRST_TOKEN, vocab_size - 1), vocab_size) for _ in range(count)]

    shared = tokens(task.shared_tokens)
    return [shared + tokens(task.own_tokens) for _ in range(task.num_prompts)]


def _serve_all(llm: Any, prompts: list[list[int]], num_tokens: int, *, forgets_device: bool) -> Pass:
    before, outputs = _loaded(llm), []
    for prompt in prompts:
        if forgets_device:
            llm.reset_prefix_cache()
        outputs.append(_generate(llm, prompt, num_tokens))
    after = _loaded(llm)
    return Pass(
        answers=[list(output.outputs[0].token_ids) for output in outputs],
        cached_tokens=sum(output.num_cached_tokens or 0 for output in outputs),
        loaded_tokens=after[0] - before[0],
        loaded_bytes=after[1] - before[1],
        first_token_s=[output.metrics.first_token_latency for output in outputs],
    )


def _generate(llm: Any, prompt: list[int], num_tokens: int) -> Any:
    from vllm import SamplingParams  # this process is for nothing else

    sampling = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True, detokenize=False)
    (output,) = llm.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)
    return output


def _loaded(llm: Any) -> tuple[int, int]:
    """Tokens and bytes that the plug-in has loaded so far."""
    values = {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")}
    names = ("vllm:external_prefix_cache_hits", "vllm:kv_offload_load_bytes")
    tokens, num_bytes = (int(values.get(name, 0)) for name in names)
    return tokens, num_bytes


def _read_from_disk() -> int:
    """The chunks that the plug-in has read from there, by the metrics of this process."""
    from prometheus_client import REGISTRY  # vLLM's

    labels = {"medium": "memory", "event": "promoted"}
    samples = (sample for metric in REGISTRY.collect() for sample in metric.samples)
    return int(
        sum(
            sample.value
            for sample in samples
            if sample.name == "octavo_tier_events_total" and labels.items() <= sample.labels.items()
        )
    )


if __name__ == "__main__":
    given, wanted = msgspec.json.decode(sys.argv[1], type=tuple[CheckTask, list[str]])
    sys.stdout.write(_MARK + msgspec.json.encode(_serve(given, wanted)).decode() + "\n")
    sys.stdout.flush()
