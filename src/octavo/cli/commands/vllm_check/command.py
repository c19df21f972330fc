"""`octavo vllm-check`: a user's model in a user's vLLM, without and with the plug-in, compared token by token."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from octavo.cli.exit_codes import FAILED
from octavo.cli.flags import bytes_of
from octavo.cli.model_folder import find_snapshot, is_hub_name
from octavo.cli.output import print_error, write_output
from octavo.errors import MALFORMED, InputError, why_not_read
from octavo.settings import read_path
from octavo.vllm_plugin import PluginConfig


def vllm_check(
    model: Annotated[str, typer.Argument(help="A folder, or a name: from the hub's local cache, else vLLM's.")],
    *,
    memory: Annotated[
        str, typer.Option(help="Host memory for what the GPU cannot hold, for all ranks together: 8GiB.")
    ] = "4GiB",
    disk: Annotated[
        Path | None, typer.Option(help="A folder; a second process then loads from it.", show_default="none")
    ] = None,
    disk_size: Annotated[str, typer.Option(help="The most that --disk may take.")] = "16GiB",
    policy: Annotated[
        str | None, typer.Option(help="What memory gives up first.", show_default="by resume points")
    ] = None,
    prompts: Annotated[int, typer.Option(help="Prompts that share a beginning.", min=1, max=1000)] = 4,
    shared_tokens: Annotated[int, typer.Option(help="Tokens of their beginning.", min=1)] = 900,
    own_tokens: Annotated[int, typer.Option(help="Tokens that each adds.", min=1)] = 40,
    output_tokens: Annotated[int, typer.Option(help="Tokens of each answer.", min=1)] = 32,
    seed: Annotated[int, typer.Option(help="Of the prompts.")] = 0,
    vllm_args: Annotated[
        str, typer.Option(help='More for vLLM\'s LLM, as JSON: {"dtype": "bfloat16", "max_model_len": 4096}.')
    ] = "{}",
) -> None:
    """Run a model in vLLM without and with Octavo's plug-in: same answers, and what was loaded instead of computed."""
    from octavo.cli.commands.vllm_check.run import CheckTask, require_vllm, run_check
    from octavo.cli.commands.vllm_check.view import find_problem, show_check, show_gain

    model = str(read_path(model)) if model.startswith("~") else model
    task = CheckTask(
        model=str((is_hub_name(model) and find_snapshot(model)) or model),
        num_prompts=prompts,
        shared_tokens=shared_tokens,
        own_tokens=own_tokens,
        output_tokens=output_tokens,
        seed=seed,
        vllm_args=_parse_arguments(vllm_args),
        extra_config=_extra_config(memory, disk, disk_size, policy),
    )
    require_vllm()
    _require_model(model)
    for spec in PluginConfig.from_extra_config(task.extra_config or {}).offload.tiers:
        spec.check()  # a start of vLLM without the plug-in comes first
    measured = run_check(task, has_disk=disk is not None, tell=partial(typer.echo, err=True))
    write_output(show_check(measured))
    problem = find_problem(measured)
    if problem is not None:
        print_error(problem)
        write_output("Verdict: do not use the plug-in with this model here before that is understood.\n")
        raise typer.Exit(FAILED)
    write_output(f"Verdict: {show_gain(measured)}\n")


def _require_model(model: str) -> None:
    """Refuses a missing folder and a damaged one; vLLM may find other names."""
    config = Path(model) / "config.json"
    is_path = model.startswith(("/", ".", "~")) or Path(model).exists()
    if is_path and not config.is_file():
        raise InputError(f"{model} holds no model: there is no config.json in it")
    try:
        json.loads(config.read_bytes())
    except OSError:
        return
    except MALFORMED as error:
        raise InputError(f"{config} {why_not_read(error)}: get the model again") from error


def _parse_arguments(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text)
    except MALFORMED as error:
        raise InputError(f"--vllm-args {why_not_read(error)}") from error
    if not isinstance(arguments, dict):
        raise InputError(f'--vllm-args must be an object such as {{"dtype": "bfloat16"}}, not {text}')
    return arguments


def _extra_config(memory: str, disk: Path | None, disk_size: str, policy: str | None) -> dict[str, Any]:
    bytes_of("--memory", memory)
    bytes_of("--disk-size", disk_size)
    config: dict[str, Any] = {"memory": memory}
    if disk is not None:
        config |= {"disk": str(disk), "disk_size": disk_size}
    if policy is not None:
        config["policy"] = policy
    PluginConfig.from_extra_config(config)
    return config
