"""`octavo simulate`: what a cache would bring before anybody buys it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.commands.simulate.question import Question, config_of, parse_prices, questions_of
from octavo.cli.commands.simulate.run import ask_all
from octavo.cli.commands.simulate.view import show_results, to_json
from octavo.cli.exit_codes import INTERRUPTED
from octavo.cli.flags import bytes_of
from octavo.cli.model_folder import find_model
from octavo.cli.output import print_error, write_output
from octavo.errors import InputError

if TYPE_CHECKING:
    from octavo.sim import Prices, SimReport, Speeds, Trace, Worth

_USUAL_BLOCK = 16
_USUAL_PREFILL_RATE = 10_000.0
_USUAL_STEP_MS = 10.0
_LEAST, _MOST = 1e-6, 1e12
"""Of speeds. Beyond them times are endless, or none."""
_MOST_ENGINES = 4096
"""Each takes a megabyte or more of this machine, and ten milliseconds, before the first request."""

_Trace = Annotated[
    Path,
    typer.Argument(help="A file or folder of JSON with hash_ids, sessions, conversations or prompts; or a recording."),
]
_Model = Annotated[str, typer.Option(help="A config.json, its folder, or a name in the hub's local cache.")]
_Device = Annotated[str, typer.Option(help="Device memory for the cache, of one engine.")]
_Memory = Annotated[str, typer.Option(help="Host memory for offloaded chunks; 0 for none.")]
_Disk = Annotated[str, typer.Option(help="Disk below it; 0 for none.")]
_Policy = Annotated[str, typer.Option(help="What a full memory gives up: resume_points, lru, arc.")]
_Engines = Annotated[
    int, typer.Option(help="Engines, each with device, memory and disk of its own.", min=1, max=_MOST_ENGINES)
]
_Placement = Annotated[
    str,
    typer.Option(
        help="Which engine gets a request: round_robin, random, least_loaded, sticky, longest_prefix, octavo."
    ),
]
_BlockSize = Annotated[
    int | None, typer.Option(help="Tokens in a block.", show_default="the trace's, at least 16", min=1)
]
_TraceBlock = Annotated[
    int | None, typer.Option(help="Tokens that one of the trace's ids stands for.", show_default="512 or 16", min=1)
]
_Requests = Annotated[
    int | None, typer.Option(help="Only this number of requests, the first ones.", show_default=False, min=1)
]
_MaxModelLen = Annotated[
    int | None, typer.Option(help="Requests of more tokens are refused, as an engine does.", show_default=False, min=1)
]
_Sessions = Annotated[
    int | None, typer.Option(help="Sessions or conversations that are open at once.", show_default="16", min=1)
]
_Interval = Annotated[
    int | None,
    typer.Option(
        help="Tokens between two kept recurrent states, at most.",
        show_default="as states weigh and room is left",
        min=1,
    ),
]
_StepTokens = Annotated[int, typer.Option(help="Most tokens computed in one step.", min=1)]
_PrefillRate = Annotated[
    float | None, typer.Option(help="Prompt tokens that one engine computes per second.", show_default="10000")
]
_StepMs = Annotated[float | None, typer.Option(help="What a step takes besides.", show_default="10")]
_SpeedsFile = Annotated[
    list[Path] | None,
    typer.Option(
        "--speeds", help="Both, fitted to outputs of `octavo bench serve --json`; several files count together."
    ),
]
_MemoryRate = Annotated[str, typer.Option(help="Bytes per second between host memory and device.")]
_DiskRate = Annotated[str, typer.Option(help="Bytes per second of the disk.")]
_Sweep = Annotated[
    str | None, typer.Option(help="One size at several values: memory=16GiB..512GiB, or ..:12 for 12 of them.")
]
_Compare = Annotated[
    str | None, typer.Option(help="A second configuration: what differs, as policy=lru,memory=128GiB.")
]
_Plot = Annotated[Path | None, typer.Option(help="Draw the sweep into this file, .svg or .png.")]
_Price = Annotated[
    str | None,
    typer.Option(help="memory=3,disk=0.08,gpu-hour=2.5: a GiB for a month, an engine's device for an hour."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def simulate(
    trace: _Trace,
    *,
    model: _Model,
    device: _Device = "40GiB",
    memory: _Memory = "64GiB",
    disk: _Disk = "0",
    policy: _Policy = "resume_points",
    engines: _Engines = 1,
    placement: _Placement = "round_robin",
    block_size: _BlockSize = None,
    trace_block: _TraceBlock = None,
    requests: _Requests = None,
    sessions: _Sessions = None,
    max_model_len: _MaxModelLen = None,
    checkpoint_interval_tokens: _Interval = None,
    step_tokens: _StepTokens = 8192,
    prefill_rate: _PrefillRate = None,
    step_ms: _StepMs = None,
    speeds: _SpeedsFile = None,
    memory_rate: _MemoryRate = "20GB",
    disk_rate: _DiskRate = "3GB",
    sweep: _Sweep = None,
    compare: _Compare = None,
    price: _Price = None,
    plot: _Plot = None,
    json: _Json = False,
) -> None:
    """Replay a trace of requests through Octavo's own rules, over time and bytes that are models.

    Ctrl-C or SIGTERM ends it early and shows what there is.
    """
    from octavo.sim import read_trace

    _check_flags(sweep=sweep, compare=compare, plot=plot)
    prices = None if price is None else parse_prices(price)
    asked = read_trace(
        trace,
        block_tokens=trace_block,
        most_requests=requests,
        max_model_len=max_model_len,
        open_sessions=sessions,
    )
    question = Question(
        model=find_model(model, files="config.json"),
        block_size=block_size or max(_USUAL_BLOCK, asked.block_tokens),
        device=device,
        memory=memory,
        disk=disk,
        policy=policy,
        engines=engines,
        placement=placement,
        checkpoint_interval_tokens=checkpoint_interval_tokens,
        step_tokens=step_tokens,
        speeds=_speeds_of(speeds or [], prefill_rate, step_ms, memory_rate=memory_rate, disk_rate=disk_rate),
    )
    results, worths = _answer(questions_of(question, sweep=sweep, compare=compare), asked, prices)
    _tell(asked, results, swept=None if sweep is None else sweep.partition("=")[0], worths=worths, plot=plot, json=json)


def _answer(
    questions: "Sequence[Question]", asked: "Trace", prices: "Prices | None"
) -> "tuple[list[tuple[Question, SimReport]], list[Worth] | None]":
    """The results of the questions, and their value in money."""
    from octavo.sim import worth_of

    config_of_question = {each: config_of(each, asked) for each in questions}  # a wrong value is told before minutes
    results = ask_all(questions, asked)
    if not results:
        print_error("the simulation was interrupted before it had a result")
        raise typer.Exit(INTERRUPTED)
    if prices is None:
        return results, None
    return results, [
        worth_of(report, config_of_question[each], prices, num_engines=each.engines) for each, report in results
    ]


def _tell(
    asked: "Trace",
    results: "list[tuple[Question, SimReport]]",
    *,
    swept: str | None,
    worths: "list[Worth] | None",
    plot: Path | None,
    json: bool,
) -> None:
    from octavo.cli.commands.simulate.plot import draw

    show = to_json if json else show_results
    write_output(show(asked, results, swept=swept, worths=worths))
    if plot is not None and swept is not None:
        draw(plot, results, swept)


def _check_flags(*, sweep: str | None, compare: str | None, plot: Path | None) -> None:
    from octavo.cli.commands.simulate.plot import check_plot

    if sweep is not None and compare is not None:
        raise InputError("--sweep and --compare are two questions: ask one at a time")
    if plot is not None and sweep is None:
        raise InputError("--plot draws a sweep: add --sweep, such as --sweep memory=16GiB..512GiB")
    if plot is not None:
        check_plot(plot)


def _speeds_of(
    files: Sequence[Path], prefill_rate: float | None, step_ms: float | None, *, memory_rate: str, disk_rate: str
) -> "Speeds":
    from octavo.sim import Speeds, read_speeds

    rate = _USUAL_PREFILL_RATE if prefill_rate is None else prefill_rate
    step = _USUAL_STEP_MS if step_ms is None else step_ms
    given = Speeds(
        prefill_tokens_per_s=_positive("--prefill-rate", rate),
        step_s=_positive("--step-ms", step) / 1000,
        memory_bytes_per_s=bytes_of("--memory-rate", memory_rate),
        disk_bytes_per_s=bytes_of("--disk-rate", disk_rate),
    )
    if not files:
        return given
    if prefill_rate is not None or step_ms is not None:
        raise InputError("--speeds tells the prefill rate and a step's time: leave out --prefill-rate and --step-ms")
    return read_speeds(files, given)


def _positive(flag: str, value: float) -> float:
    if not _LEAST <= value <= _MOST:
        raise InputError(f"{flag} must be a number from {_LEAST:g} to {_MOST:g}, not {value}")
    return value
