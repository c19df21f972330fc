"""`octavo plan`: what a model's cache needs, wastes and holds."""

import json as json_module
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from octavo.cli.commands.plan.view import show_plan
from octavo.cli.flags import bytes_of, naming
from octavo.cli.model_folder import find_model
from octavo.cli.output import write_output
from octavo.errors import InputError, PlanError
from octavo.planning import (
    GPU_MEMORY_GIB,
    KVCacheConfig,
    ModelLayers,
    PlanReport,
    VllmPlan,
    cache_bytes,
    plan_kv_cache,
    plan_like_vllm,
    read_layers_file,
    read_model,
    report_plan,
    usable_bytes,
)
from octavo.specs import RequestLimits
from octavo.units import parse_tokens

_DEFAULT_MEMORY = "40GiB"
_DEFAULT_CONTEXT = 131072
_MOST_TOKENS = 1 << 40
_MOST_TOKENS_IN_A_BLOCK = 1 << 20
_MOST_RANKS = 1 << 20


_Config = Annotated[
    str | None,
    typer.Argument(help="A config.json, its folder, or a name in the hub's local cache.", show_default=False),
]
_Layers = Annotated[
    Path | None, typer.Option(help="Layers in YAML, for a model that no reader knows.", show_default=False)
]
_Memory = Annotated[
    str | None, typer.Option(help="Memory for the cache of one rank: 40GiB, 80GB.", show_default="40GiB")
]
_Gpu = Annotated[
    str | None,
    typer.Option(
        help=f"Instead of --memory, what weights leave of a GPU: {', '.join(GPU_MEMORY_GIB)}.", show_default=False
    ),
]
_Weights = Annotated[
    str | None,
    typer.Option(help="Size of all weights: 140GiB.", show_default="by the files, or estimated from the config"),
]
_Context = Annotated[
    str | None,
    typer.Option(help="Longest context, or several: 128k, or 8k,32k,128k.", show_default="the model's, or what fits"),
]
_BlockSize = Annotated[int, typer.Option(help="Tokens in a block.", min=1, max=_MOST_TOKENS_IN_A_BLOCK)]
_HashBlockSize = Annotated[
    int | None,
    typer.Option(
        help="Tokens that one hash covers.", min=1, max=_MOST_TOKENS_IN_A_BLOCK, show_default="what fits all groups"
    ),
]
_StepTokens = Annotated[int, typer.Option(help="Most tokens computed in one step.", min=1, max=_MOST_TOKENS)]
_Tp = Annotated[int, typer.Option(help="Tensor-parallel ranks; the report is one rank's.", min=1, max=_MOST_RANKS)]
_KvDtype = Annotated[
    str | None,
    typer.Option(help="Type of the cache: bfloat16, fp8, int8, int4 ...", show_default="the model's"),
]
_StateDtype = Annotated[
    str | None, typer.Option(help="Type of recurrent state: float32, bfloat16 ...", show_default="the model's")
]
_Compare = Annotated[
    Literal["vllm"] | None, typer.Option(help="Plan the same with one page size too.", show_default=False)
]
_Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON (docs/plan.schema.json).")]


def plan(
    config: _Config = None,
    *,
    layers: _Layers = None,
    memory: _Memory = None,
    gpu: _Gpu = None,
    weights: _Weights = None,
    context: _Context = None,
    block_size: _BlockSize = 16,
    hash_block_size: _HashBlockSize = None,
    step_tokens: _StepTokens = 8192,
    tp: _Tp = 1,
    kv_dtype: _KvDtype = None,
    state_dtype: _StateDtype = None,
    compare: _Compare = None,
    json: _Json = False,
) -> None:
    """Say what a hybrid model's cache needs, wastes and holds."""
    with naming("--context"):
        contexts = [] if context is None else [parse_tokens(part) for part in context.split(",")]
    if max(contexts, default=0) > _MOST_TOKENS:
        raise InputError(f"--context must be from 1 to {_MOST_TOKENS}, not {max(contexts)}")
    _check_memory(memory, gpu)
    model = _read_layers(config, layers, block_size=block_size, kv_dtype=kv_dtype, state_dtype=state_dtype, tp=tp)
    if weights is not None:
        model = replace(model, weight_bytes=bytes_of("--weights", weights))
    question = _Question(
        model=model,
        memory_bytes=_memory_bytes(memory, gpu, model.weight_bytes, tp),
        contexts=contexts,
        step_tokens=step_tokens,
        block_size=block_size,
        hash_block_size=hash_block_size,
        tp=tp,
    )
    report = _answer(question, with_vllm=compare == "vllm")
    if json:
        # Not msgspec's own encoder: it refuses numbers of more than 64 bits.
        write_output(json_module.dumps(msgspec.to_builtins(report), indent=2, ensure_ascii=False) + "\n")
    else:
        write_output(show_plan(report))


def _check_memory(memory: str | None, gpu: str | None) -> None:
    """What is wrong with these two whatever the model is, before anything about the model is asked for."""
    if memory is not None and gpu is not None:
        raise InputError("give --memory or --gpu, one of the two")
    if memory is not None:
        bytes_of("--memory", memory)
    if gpu is not None:
        with naming("--gpu"):
            usable_bytes(gpu)


def _memory_bytes(memory: str | None, gpu: str | None, weight_bytes: int | None, num_ranks: int) -> int:
    """The memory for one rank's cache."""
    if gpu is None:
        return bytes_of("--memory", _DEFAULT_MEMORY if memory is None else memory)
    if weight_bytes is None:
        raise InputError(
            "--gpu: neither files nor the config say how large the weights are; say it with --weights 140GiB"
        )
    with naming("--gpu"):
        return cache_bytes(gpu, weight_bytes, num_ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    model: ModelLayers
    memory_bytes: int
    contexts: Sequence[int]
    """The contexts that were asked for; the plan is made for the longest."""
    step_tokens: int
    block_size: int
    hash_block_size: int | None
    tp: int


def _read_layers(
    config: str | None,
    layers: Path | None,
    *,
    block_size: int,
    kv_dtype: str | None,
    state_dtype: str | None,
    tp: int,
) -> ModelLayers:
    match config, layers:
        case str(), None:
            source = find_model(config, files="config.json")
            return read_model(
                source, block_size=block_size, kv_dtype=kv_dtype, state_dtype=state_dtype, tensor_parallel_size=tp
            )
        case None, Path():
            if kv_dtype is not None or state_dtype is not None or tp != 1:
                raise InputError(
                    "--kv-dtype, --state-dtype and --tp change a model's layers; a --layers file says its own"
                )
            return read_layers_file(layers, block_size=block_size)
        case _:
            raise InputError("give a model's config.json or --layers spec.yaml, one of the two")


def _answer(question: _Question, *, with_vllm: bool) -> PlanReport:
    model = question.model
    notes = [*model.notes, *_notes_of_context(model.max_model_len, question.contexts)]
    longest = max(question.contexts, default=None) or model.max_model_len or _DEFAULT_CONTEXT
    limits = RequestLimits(
        max_model_len=longest, max_step_tokens=question.step_tokens, max_encoder_tokens=model.max_encoder_tokens
    )
    config = plan_kv_cache(
        model.layers,
        memory_bytes=question.memory_bytes,
        limits=limits,
        hash_block_size=question.hash_block_size,
        shorten_context=not question.contexts,
    )
    if config.limits != limits:
        notes.append(
            f"The model's context of {longest:,} tokens does not fit; planned for the {config.limits.max_model_len:,} "
            "that do."
        )
    if reason := config.why_nothing_resumes():
        notes.append(f"{reason[0].upper()}{reason[1:]}.")
    vllm = None
    if with_vllm:
        try:
            vllm = _vllm_plan(question, config)
        except PlanError as error:
            notes.append(f"No plan of vLLM's to compare with: {error}")
    return report_plan(
        config,
        model=model.architecture,
        notes=tuple(notes),
        tensor_parallel_size=question.tp,
        contexts=question.contexts,
        weight_bytes=model.weight_bytes,
        vllm=vllm,
    )


def _notes_of_context(own: int | None, asked: Sequence[int]) -> tuple[str, ...]:
    if own is None:
        named = "The config names no longest context"
        return () if asked else (f"{named}: {_DEFAULT_CONTEXT:,} tokens are assumed; --context says another.",)
    if max(asked, default=0) <= own:
        return ()
    return (f"The config names {own:,} tokens as the longest context; a longer one needs positions that are scaled.",)


def _vllm_plan(question: _Question, config: KVCacheConfig) -> VllmPlan:
    return plan_like_vllm(
        question.model.layers,
        memory_bytes=question.memory_bytes,
        limits=config.limits,
        block_size=question.block_size,
        spare_states=int(question.model.has_mamba2_state),
    )
