"""`octavo plan`: what a model's cache needs, wastes and holds."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from octavo.cli.plan_view import show_plan
from octavo.errors import InputError
from octavo.planning import (
    ModelLayers,
    PlanReport,
    parse_bytes,
    parse_tokens,
    plan_kv_cache,
    plan_like_vllm,
    read_layers_file,
    read_model,
    report_plan,
)
from octavo.specs import RequestLimits

_DEFAULT_CONTEXT = 131072
_LONGEST_CONTEXT = 1 << 40


def plan(
    config: Annotated[
        Path | None, typer.Argument(help="A model's config.json, or the folder that holds it.", show_default=False)
    ] = None,
    *,
    layers: Annotated[Path | None, typer.Option(help="Layers in YAML, for a model that no reader knows.")] = None,
    memory: Annotated[str, typer.Option(help="Memory for the cache of one rank: 40GiB, 80GB.")] = "40GiB",
    context: Annotated[
        str | None, typer.Option(help="Longest context: 131072, 128k.", show_default="the model's, or what fits")
    ] = None,
    block_size: Annotated[int, typer.Option(help="Tokens in a block.")] = 16,
    hash_block_size: Annotated[
        int | None, typer.Option(help="Tokens that one hash covers.", show_default="what fits all groups")
    ] = None,
    step_tokens: Annotated[int, typer.Option(help="Most tokens computed in one step.")] = 8192,
    tp: Annotated[int, typer.Option(help="Tensor-parallel ranks; the report is one rank's.")] = 1,
    kv_dtype: Annotated[str | None, typer.Option(help="Type of the cache: bfloat16, fp8, int8, int4 ...")] = None,
    compare: Annotated[Literal["vllm"] | None, typer.Option(help="Plan the same with one page size too.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON (docs/plan.schema.json).")] = False,
) -> None:
    """Say what a hybrid model's cache needs, wastes and holds."""
    model = _read(config, layers, block_size=block_size, kv_dtype=kv_dtype, tp=tp)
    asked_context = None if context is None else parse_tokens(context)
    report = _plan(
        model,
        memory_bytes=parse_bytes(memory),
        asked_context=asked_context,
        step_tokens=step_tokens,
        block_size=block_size,
        hash_block_size=hash_block_size,
        tp=tp,
        with_vllm=compare == "vllm",
    )
    if json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    else:
        show_plan(report)


def _read(config: Path | None, layers: Path | None, *, block_size: int, kv_dtype: str | None, tp: int) -> ModelLayers:
    if block_size < 1:
        raise InputError(f"--block-size must be 1 or more, not {block_size}")
    if tp < 1:
        raise InputError(f"--tp must be 1 or more, not {tp}")
    match config, layers:
        case Path(), None:
            return read_model(config, block_size=block_size, kv_dtype=kv_dtype, tensor_parallel_size=tp)
        case None, Path():
            if kv_dtype is not None or tp != 1:
                raise InputError("--kv-dtype and --tp change a model's layers; a --layers file says its own")
            return read_layers_file(layers, block_size=block_size)
        case _:
            raise InputError("give a model's config.json or --layers spec.yaml, one of the two")


def _plan(
    model: ModelLayers,
    *,
    memory_bytes: int,
    asked_context: int | None,
    step_tokens: int,
    block_size: int,
    hash_block_size: int | None,
    tp: int,
    with_vllm: bool,
) -> PlanReport:
    notes = list(model.notes)
    longest = asked_context or model.max_model_len or _DEFAULT_CONTEXT
    if longest > _LONGEST_CONTEXT:
        raise InputError(f"a context of {longest} tokens is more than any model's; the limit is {_LONGEST_CONTEXT}")
    if step_tokens < 1:
        raise InputError(f"--step-tokens must be 1 or more, not {step_tokens}")
    limits = RequestLimits(
        max_model_len=longest, max_step_tokens=step_tokens, max_encoder_tokens=model.max_encoder_tokens
    )
    config = plan_kv_cache(
        model.layers,
        memory_bytes=memory_bytes,
        limits=limits,
        hash_block_size=hash_block_size,
        shorten_context=asked_context is None,
    )
    if config.limits != limits:
        notes.append(f"{longest:,} tokens of context do not fit; planned for {config.limits.max_model_len:,} that do")
    vllm = None
    if with_vllm:
        vllm = plan_like_vllm(model.layers, memory_bytes=memory_bytes, limits=config.limits, block_size=block_size)
    return report_plan(config, model=model.architecture, notes=tuple(notes), tensor_parallel_size=tp, vllm=vllm)
