"""What memory and disk cost, and what the computing that they save is worth."""

from dataclasses import dataclass

from octavo.sim.engine import SimConfig
from octavo.sim.report import SimReport

_GIB = 1 << 30
_HOURS_PER_MONTH = 730


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """In any currency."""

    memory: float = 0.0
    """A GiB of host memory, for a month."""
    disk: float = 0.0
    """A GiB of disk, for a month."""
    gpu_hour: float = 0.0
    """One engine's device, for an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """One configuration's memory and disk, by the hour."""

    cost: float
    saved: float
    """The price of the device's time that computing the loaded tokens would have taken."""
    tokens_per_money: float | None
    """Tokens that were loaded rather than computed; None where nothing is paid."""

    @property
    def net(self) -> float:
        return self.saved - self.cost


def worth_of(report: SimReport, config: SimConfig, prices: Prices, *, num_engines: int) -> Worth:
    """What is resumed from the device is there anyway, and does not count."""
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
