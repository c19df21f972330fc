"""`RecencyOrder` beside an `OrderedDict`, with runs so short that they fill, thin out and join all the time."""

from collections import OrderedDict

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from octavo.tables import recency
from octavo.tables.recency import RecencyOrder

KEYS = st.lists(st.integers(0, 30).map(lambda n: bytes([n % 5, n])), max_size=12, unique=True)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["use", "use", "renew", "pop", "drop"]), KEYS),
        st.tuples(st.just("pop_oldest"), st.integers(0, 9)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("run_length", [4, 16])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS)
def test_is_an_order_by_last_use(monkeypatch, run_length, operations):
    monkeypatch.setattr(recency, "RUN_LENGTH", run_length)
    order, model = RecencyOrder(), OrderedDict()
    for operation, argument in operations:
        apply(operation, argument, order, model)
        order.check_invariants()
        assert order.num_slots == sum(model.values())
        assert order.oldest() == next(iter(model), None)
    assert len(order) == len(model)
    assert order.pop_oldest(10_000) == (list(model), list(model.values()))


def apply(operation, argument, order, model):
    match operation:
        case "use":
            new = [key for key in argument if key not in model]
            order.extend(new, [1 + key[1] % 3 for key in new])
            model |= {key: 1 + key[1] % 3 for key in new}
            renew([key for key in argument if key not in new], order, model)
        case "renew":
            renew(argument, order, model)
        case "pop":
            for key in argument:
                assert (key in order) == (key in model)
                assert order.pop(key) == model.pop(key, None)
        case "drop":
            order.drop(argument)
            for key in argument:
                model.pop(key, None)
        case "pop_oldest":
            expected, freed = [], 0
            while model and freed < argument:
                key, slots = model.popitem(last=False)
                expected.append(key)
                freed += slots
            assert order.pop_oldest(argument)[0] == expected


def renew(keys, order, model):
    order.renew(keys)
    for key in keys:
        if key in model:
            model.move_to_end(key)


def test_blanks_and_runs_stay_in_proportion(monkeypatch):
    """Whatever is used in whatever order: here a few keys again and again, between many that are never used again."""
    monkeypatch.setattr(recency, "RUN_LENGTH", 16)
    order = RecencyOrder()
    hot = [bytes([n, 0]) for n in range(15)]
    order.extend(hot, [1] * 15)
    for n in range(2000):
        order.add(bytes([n % 256, 1 + n // 256]), 1)
        order.renew(hot)
    runs = list(order._runs.values())
    assert sum(len(run) for run in runs) <= 4 * len(order)
    assert len(runs) <= 16 * len(order) / 16 + 2
