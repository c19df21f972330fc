"""`Question`: one configuration to try on a trace, and the questions that flags ask."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.cli.flags import bytes_of
from octavo.errors import InputError, NotEnoughMemoryError
from octavo.planning import KVCacheConfig, plan_kv_cache, read_model
from octavo.specs import RequestLimits
from octavo.units import find_count

if TYPE_CHECKING:
    from octavo.sim import Prices, SimConfig, Speeds, Trace

_POINTS = 8
_MOST_POINTS = 64
_SWEPT = ("device", "memory", "disk")
_COMPARED = (*_SWEPT, "policy", "placement")
_HIGHEST_PRICE = 1e12
_PRICED = ("memory", "disk", "gpu-hour")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One configuration to try on a trace."""

    model: Path
    block_size: int
    device: str
    memory: str
    disk: str
    policy: str
    engines: int
    placement: str
    checkpoint_interval_tokens: int | None
    step_tokens: int
    speeds: "Speeds"

    def name(self) -> str:
        return f"device {self.device}, memory {self.memory}, disk {self.disk}, {self.policy}"


def config_of(question: Question, trace: "Trace") -> "SimConfig":
    """A question's configuration, checked against the trace."""
    from octavo.policies import POLICIES
    from octavo.sim import PLACEMENTS, SimConfig, check_room

    POLICIES.find(question.policy)
    memory_bytes = bytes_of("--memory", question.memory, may_be_zero=True)
    if not memory_bytes and bytes_of("--disk", question.disk, may_be_zero=True):
        raise InputError("--disk is reached through host memory: give --memory too, such as 1GiB")
    if question.placement not in PLACEMENTS:
        raise InputError(f"placement: {question.placement!r} is not known; choose one of {', '.join(PLACEMENTS)}")
    plan = _plan(question, trace)
    config = SimConfig(
        plan=plan,
        memory_bytes=memory_bytes,
        disk_bytes=_disk_bytes(question, plan),
        policy=question.policy,
        speeds=question.speeds,
    )
    check_room(trace, config)
    return config


def _plan(question: Question, trace: "Trace") -> KVCacheConfig:
    layers = read_model(question.model, block_size=question.block_size).layers
    limits = RequestLimits(max_model_len=trace.longest + 1, max_step_tokens=question.step_tokens)
    device_bytes = bytes_of("--device", question.device)
    try:
        return plan_kv_cache(
            layers,
            memory_bytes=device_bytes,
            limits=limits,
            checkpoint_interval_tokens=question.checkpoint_interval_tokens,
        )
    except NotEnoughMemoryError as error:
        place = trace.longest_request.place
        raise NotEnoughMemoryError(f"--device: {error} That is the trace's longest request, {place}.") from None


def _disk_bytes(question: Question, plan: KVCacheConfig) -> int:
    """The disk's size. One that an engine's disk tier refuses is refused, in the tier's words."""
    from octavo.tiers.disk import DiskConfig

    num_bytes = bytes_of("--disk", question.disk, may_be_zero=True)
    if num_bytes:
        tier = DiskConfig(path=Path(), size_bytes=num_bytes)
        tier.segment_bytes_for(max(group.page_bytes for group in plan.groups))
    return num_bytes


def questions_of(question: Question, *, sweep: str | None, compare: str | None) -> list[Question]:
    """The question itself, with the one to compare it with, or all of a sweep."""
    if sweep is not None:
        return _sweep(question, sweep)
    return [question] if compare is None else [question, _compared(question, compare)]


def parse_prices(asked: str) -> "Prices":
    """Reads prices such as `memory=3,disk=0.08,gpu-hour=2.5`."""
    from octavo.sim import Prices

    prices: dict[str, float] = {}
    for part in asked.split(","):
        key, _, value = part.strip().partition("=")
        try:
            price = float(value)
        except ValueError:
            price = -1.0
        if key not in _PRICED or not 0 <= price <= _HIGHEST_PRICE:
            raise InputError(
                f"--price: {part!r} is not of the form memory=3,disk=0.08,gpu-hour=2.5: a GiB of memory or disk for a "
                f"month, one engine's device for an hour"
            )
        if key in prices:
            raise InputError(f"--price: {asked!r} names {key} twice")
        prices[key] = price
    return Prices(**{key.replace("-", "_"): price for key, price in prices.items()})


def _sweep(question: Question, asked: str) -> list[Question]:
    """Reads `memory=16GiB..512GiB`, or `..512GiB:12`: sizes between the two, each larger by the same factor."""
    key, _, values = asked.partition("=")
    ends, _, points = values.partition(":")
    first, is_range, last = ends.partition("..")
    if key not in _SWEPT or not is_range:
        raise InputError(
            f"--sweep: {asked!r} is not of the form memory=16GiB..512GiB; what can be swept: {', '.join(_SWEPT)}"
        )
    count = find_count(points) if points else _POINTS
    if count is None or not 2 <= count <= _MOST_POINTS:
        raise InputError(f"--sweep: a curve has 2 to {_MOST_POINTS} points, not {points!r:.60}")
    low, high = bytes_of("--sweep", first), bytes_of("--sweep", last)
    if low >= high:
        raise InputError(f"--sweep: {first} is not below {last}")
    sizes = [round(low * (high / low) ** (index / (count - 1))) for index in range(count)]
    return [_changed(question, key, f"{size}B") for size in sizes]


def _compared(question: Question, asked: str) -> Question:
    """The configuration with some of its settings changed: `policy=lru,memory=128GiB`."""
    changed: set[str] = set()
    for part in asked.split(","):
        key, has_value, value = part.strip().partition("=")
        if key not in _COMPARED or not has_value:
            raise InputError(
                f"--compare: {part!r} is not of the form policy=lru; what may differ: {', '.join(_COMPARED)}"
            )
        if key in changed:
            raise InputError(f"--compare: {asked!r} names {key} twice")
        changed.add(key)
        question = _changed(question, key, value)
    return question


def _changed(question: Question, key: str, value: str) -> Question:
    changes: dict[str, Any] = {key: value}
    return replace(question, **changes)
