"""`octavo simulate`: what a cache would bring, before anybody buys it."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.output import write_output
from octavo.cli.simulate_question import Question
from octavo.errors import InputError
from octavo.planning import plan_kv_cache, read_model
from octavo.specs import RequestLimits
from octavo.units import parse_bytes

if TYPE_CHECKING:
    from octavo.sim import SimConfig, SimReport, Trace

_USUAL_BLOCK = 16
_POINTS = 8
_MOST_POINTS = 64
_SWEPT = ("device", "memory", "disk")
_COMPARED = (*_SWEPT, "policy")


_Trace = Annotated[Path, typer.Argument(help="A trace: JSON lines with hash_ids, conversations, or a recording.")]
_Model = Annotated[Path, typer.Option(help="A model's config.json, or the folder that holds it.")]
_Device = Annotated[str, typer.Option(help="Device memory for the cache, of one engine.")]
_Memory = Annotated[str, typer.Option(help="Host memory for offloaded chunks; 0 for none.")]
_Disk = Annotated[str, typer.Option(help="Disk below it; 0 for none.")]
_Policy = Annotated[str, typer.Option(help="What a full memory gives up: resume_points, lru, arc.")]
_Engines = Annotated[int, typer.Option(help="Engines, each with device, memory and disk of its own.", min=1)]
_Placement = Annotated[
    str, typer.Option(help="Which engine gets a request: round_robin, random, least_loaded, sticky.")
]
_BlockSize = Annotated[
    int | None, typer.Option(help="Tokens in a block.", show_default="the trace's, at least 16", min=1)
]
_TraceBlock = Annotated[
    int | None, typer.Option(help="Tokens that one of the trace's ids stands for.", show_default="512 or 16", min=1)
]
_Requests = Annotated[int | None, typer.Option(help="Only the first so many.", show_default=False, min=1)]
_StepTokens = Annotated[int, typer.Option(help="Most tokens computed in one step.", min=1)]
_PrefillRate = Annotated[float, typer.Option(help="Prompt tokens that one engine computes per second.")]
_StepMs = Annotated[float, typer.Option(help="What a step takes besides.")]
_MemoryRate = Annotated[str, typer.Option(help="Bytes per second between host memory and device.")]
_DiskRate = Annotated[str, typer.Option(help="Bytes per second of the disk.")]
_Sweep = Annotated[
    str | None, typer.Option(help="One size at several values: memory=16GiB..512GiB, or ..:12 for 12 of them.")
]
_Compare = Annotated[
    str | None, typer.Option(help="A second configuration: what differs, as policy=lru,memory=128GiB.")
]
_Plot = Annotated[Path | None, typer.Option(help="Draw the sweep into this file, .svg or .png.")]
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
    step_tokens: _StepTokens = 8192,
    prefill_rate: _PrefillRate = 10_000.0,
    step_ms: _StepMs = 10.0,
    memory_rate: _MemoryRate = "20GB",
    disk_rate: _DiskRate = "3GB",
    sweep: _Sweep = None,
    compare: _Compare = None,
    plot: _Plot = None,
    json: _Json = False,
) -> None:
    """Replay a trace of requests through Octavo's own rules, over time and bytes that are models.

    Ctrl-C ends it early and shows what there is.
    """
    if json:
        from octavo.cli.simulate_view import to_json as show  # rich, which JSON needs not
    else:
        from octavo.cli.simulate_view import show_results as show
    from octavo.cli.simulate_plot import draw
    from octavo.sim import read_trace

    _check_flags(placement, sweep=sweep, compare=compare, plot=plot)
    asked = read_trace(trace, block_tokens=trace_block, most_requests=requests)
    question = Question(
        model=model,
        block_size=block_size or max(_USUAL_BLOCK, asked.block_tokens),
        device=device,
        memory=memory,
        disk=disk,
        policy=policy,
        engines=engines,
        placement=placement,
        step_tokens=step_tokens,
        prefill_rate=prefill_rate,
        step_ms=step_ms,
        memory_rate=memory_rate,
        disk_rate=disk_rate,
    )
    questions = _questions(question, sweep=sweep, compare=compare)
    for each in questions:
        config_of(each, asked)  # a wrong value is told now, and not after minutes
    results = _ask_all(questions, asked)
    if not results:
        raise InputError("the simulation was interrupted before it had a result")
    swept = None if sweep is None else sweep.partition("=")[0]
    write_output(show(asked, results, swept=swept))
    if plot is not None and swept is not None:
        draw(plot, results, swept)


def _questions(question: Question, *, sweep: str | None, compare: str | None) -> list[Question]:
    if sweep is not None:
        return _sweep(question, sweep)
    return [question] if compare is None else [question, _compared(question, compare)]


def _check_flags(placement: str, *, sweep: str | None, compare: str | None, plot: Path | None) -> None:
    from octavo.cli.simulate_plot import check_plot
    from octavo.sim import PLACEMENTS

    if placement not in PLACEMENTS:
        raise InputError(f"--placement: {placement!r} is not known; choose one of {', '.join(PLACEMENTS)}")
    if sweep is not None and compare is not None:
        raise InputError("--sweep and --compare are two questions: ask one at a time")
    if plot is not None and sweep is None:
        raise InputError("--plot draws a sweep: add --sweep, such as --sweep memory=16GiB..512GiB")
    if plot is not None:
        check_plot(plot)


def config_of(question: Question, trace: "Trace") -> "SimConfig":
    """A question's configuration, checked against the trace."""
    from octavo.policies import POLICIES
    from octavo.sim import SimConfig, Speeds, check_room

    POLICIES.find(question.policy)
    layers = read_model(question.model, block_size=question.block_size).layers
    limits = RequestLimits(max_model_len=trace.longest + 1, max_step_tokens=question.step_tokens)
    speeds = Speeds(
        prefill_tokens_per_s=_positive("--prefill-rate", question.prefill_rate),
        step_s=_positive("--step-ms", question.step_ms) / 1000,
        memory_bytes_per_s=_size("--memory-rate", question.memory_rate),
        disk_bytes_per_s=_size("--disk-rate", question.disk_rate),
    )
    config = SimConfig(
        plan=plan_kv_cache(layers, memory_bytes=_size("--device", question.device), limits=limits),
        memory_bytes=_size_or_none("--memory", question.memory),
        disk_bytes=_size_or_none("--disk", question.disk),
        policy=question.policy,
        speeds=speeds,
        max_step_tokens=question.step_tokens,
    )
    check_room(trace, config)
    return config


def _ask_all(questions: Sequence[Question], trace: "Trace") -> "list[tuple[Question, SimReport]]":
    """One after the other, or several at once on as many cores; what there is when it is interrupted."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(transient=True, console=Console(stderr=True)) as progress:
        if len(questions) == 1:
            task = progress.add_task("requests", total=len(trace.requests))
            report = ask(questions[0], trace, lambda done: progress.update(task, completed=done))
            return [(questions[0], report)] if report.num_requests else []
        task = progress.add_task("configurations", total=len(questions))
        found: dict[int, SimReport] = {}
        with ProcessPoolExecutor(cpu_count(), mp_context=get_context("spawn")) as workers:
            futures = {workers.submit(ask, question, trace): index for index, question in enumerate(questions)}
            try:
                for future in as_completed(futures):
                    found[futures[future]] = future.result()
                    progress.advance(task)
            except KeyboardInterrupt:
                workers.shutdown(wait=False, cancel_futures=True)
        return [(questions[index], report) for index, report in sorted(found.items())]


def ask(question: Question, trace: "Trace", note_progress: Callable[[int], None] = lambda _: None) -> "SimReport":
    """Serves the trace under one configuration."""
    from octavo.sim import PLACEMENTS, replay

    return replay(
        trace,
        config_of(question, trace),
        num_engines=question.engines,
        place=PLACEMENTS[question.placement](),
        note_progress=note_progress,
    )


def _sweep(question: Question, asked: str) -> list[Question]:
    """`memory=16GiB..512GiB`, or `..512GiB:12`: sizes between the two, each as many times the one before."""
    key, _, values = asked.partition("=")
    ends, _, points = values.partition(":")
    first, is_range, last = ends.partition("..")
    if key not in _SWEPT or not is_range:
        raise InputError(
            f"--sweep: {asked!r} is not of the form memory=16GiB..512GiB; what can be swept: {', '.join(_SWEPT)}"
        )
    if not (points or str(_POINTS)).isdecimal() or not 2 <= int(points or _POINTS) <= _MOST_POINTS:
        raise InputError(f"--sweep: a curve has 2 to {_MOST_POINTS} points, not {points!r}")
    low, high, count = _size("--sweep", first), _size("--sweep", last), int(points or _POINTS)
    if low >= high:
        raise InputError(f"--sweep: {first} is not below {last}")
    sizes = [round(low * (high / low) ** (index / (count - 1))) for index in range(count)]
    return [_changed(question, key, str(size)) for size in sizes]


def _compared(question: Question, asked: str) -> Question:
    """The configuration with some of its settings changed: `policy=lru,memory=128GiB`."""
    for part in asked.split(","):
        key, has_value, value = part.strip().partition("=")
        if key not in _COMPARED or not has_value:
            raise InputError(
                f"--compare: {part!r} is not of the form policy=lru; what may differ: {', '.join(_COMPARED)}"
            )
        question = _changed(question, key, value)
    return question


def _changed(question: Question, key: str, value: str) -> Question:
    changes: dict[str, Any] = {key: value}
    return replace(question, **changes)


def _size(flag: str, value: str) -> int:
    with _naming(flag):
        return parse_bytes(value)


def _size_or_none(flag: str, value: str) -> int:
    return 0 if value == "0" else _size(flag, value)


def _positive(flag: str, value: float) -> float:
    if not 0 < value < float("inf"):
        raise InputError(f"{flag} must be a number above 0, not {value}")
    return value


@contextmanager
def _naming(flag: str) -> Iterator[None]:
    """Puts the flag before the complaint about its value."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{flag}: {error}") from error
