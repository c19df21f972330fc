"""What memory and disk cost in an hour, and what the tokens that they bring would have cost to compute."""

import numpy as np
import pytest

from octavo.sim import Prices, SimConfig, Speeds, Trace, TraceRequest, replay, worth_of
from octavo.testing import full, small_model

GIB = 1 << 30


def test_prices_of_an_hour():
    """Five sessions in turn over a device that holds one or two: all but the first of each is loaded from memory."""
    ids = [np.arange(first, first + 20, dtype=np.int32) for first in range(0, 500, 100)]
    requests = [
        TraceRequest(
            arrival_s=360.0 * number,
            num_prompt_tokens=80,
            num_output_tokens=1,
            block_ids=ids[number % 5],
            block_tokens=4,
            knows_output=False,
        )
        for number in range(11)
    ]
    speeds = Speeds(prefill_tokens_per_s=100.0, memory_bytes_per_s=1e18)
    config = SimConfig(plan=small_model(full(4)).plan(1.0), memory_bytes=1 << 20, speeds=speeds)
    report = replay(Trace(requests=requests, block_tokens=4), config)
    assert report.arrivals_s == 3600.0
    assert not report.is_overloaded
    assert report.loaded_tokens == report.resumed_tokens["memory"]

    worth = worth_of(report, config, Prices(memory=730 * 1024, gpu_hour=36.0), num_engines=2)
    assert worth.cost == pytest.approx(2.0), "a MiB for each engine"
    assert worth.saved == pytest.approx(report.loaded_tokens / 100 / 3600 * 36)
    assert worth.tokens_per_money == pytest.approx(report.loaded_tokens / 2)
    assert worth_of(report, config, Prices(), num_engines=1).tokens_per_money is None


def test_engines_that_are_too_slow_are_told():
    requests = [
        TraceRequest(
            arrival_s=float(number),
            num_prompt_tokens=40,
            num_output_tokens=1,
            block_ids=np.arange(1000 * number, 1000 * number + 10, dtype=np.int32),
            block_tokens=4,
            knows_output=False,
        )
        for number in range(60)
    ]
    speeds = Speeds(prefill_tokens_per_s=10.0)
    config = SimConfig(plan=small_model(full(4)).plan(1.0), speeds=speeds)
    assert replay(Trace(requests=requests, block_tokens=4), config).is_overloaded
