"""The cost of memory and disk, and the value of the computing that they save."""

from dataclasses import dataclass

from octavo.sim.engine import SimConfig
from octavo.sim.report import SimReport

_GIB = 1 << 30
_HOURS_PER_MONTH = 730


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices, in any currency."""

    memory: float = 0.0
    """The price of a GiB of host memory for a month."""
    disk: float = 0.0
    """The price of a GiB of disk for a month."""
    gpu_hour: float = 0.0
    """The price of one engine's device for an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """The cost and the value of one configuration's memory and disk, per hour."""

    cost: float
    saved: float
    """The price of the device's time that computing the loaded tokens would have taken."""
    tokens_per_money: float | None
    """Loaded tokens per unit of money; None if memory and disk cost nothing."""

    @property
    def net(self) -> float:
        return self.saved - self.cost


def worth_of(report: SimReport, config: SimConfig, prices: Prices, *, num_engines: int) -> Worth:
    """Judges memory and disk. Tokens resumed from the device do not count, as they need neither."""
    cost = (
        num_engines * (config.memory_bytes * prices.memory + config.disk_bytes * prices.disk) / _GIB / _HOURS_PER_MONTH
    )
    hours = report.arrivals_s / 3600
    if not hours:
        return Worth(cost=cost, saved=0.0, tokens_per_money=None)
    return Worth(
        cost=cost,
        saved=report.loaded_s / 3600 * prices.gpu_hour / hours,
        tokens_per_money=report.loaded_tokens / hours / cost if cost else None,
    )
