"""The last ten minutes that the page shows."""

import pytest

from octavo.server.history import History, quantile
from rigs.tier_report import REPORT


def test_points_are_what_happened_between_two_looks(server, client):
    history = History(server.server.service.metrics)
    look = lambda: server.ask(lambda engine: engine.snapshot())  # noqa: E731
    history.note((look(), None), 10.0)
    for _ in range(2):
        client.post("/v1/completions", json={"prompt": "h" * 64, "max_tokens": 5, "temperature": 0})
    history.note((look(), REPORT), 12.0)
    (point,) = history.points
    assert (point.seconds, point.computed_tokens, point.resumed_tokens, point.output_tokens) == (2.0, 80, 48, 10)
    assert point.loaded_bytes.keys() == {"memory", "disk"}
    assert point.stored_bytes == 320
    median, p95 = point.first_token_s
    assert 0 < median <= p95
    history.note((look(), REPORT), 14.0)
    assert (history.points[1].first_token_s, history.points[1].output_tokens) == (None, 0)


def test_no_more_than_ten_minutes_are_kept(server):
    history = History(server.server.service.metrics)
    snapshot = server.ask(lambda engine: engine.snapshot())
    for second in range(200):
        history.note((snapshot, None), float(second))
    assert len(history.points) == 120


def test_the_page_gets_them(server, client):
    service = server.server.service
    snapshot = server.ask(lambda engine: engine.snapshot())
    for seconds in (1, 2):  # the server's own first look may be yet to come
        service.history.note((snapshot, None), service.metrics.latencies.clock() + seconds)
    assert client.get("/history").json()[-1]["errors"] >= 0


@pytest.mark.parametrize(("share", "seconds"), [(0.5, 0.15), (0.1, 0.05), (0.9, 0.2), (1.0, 0.2)])
def test_quantiles_are_even_within_a_bucket(share, seconds):
    assert quantile([(0.1, 2.0), (0.2, 8.0), (float("inf"), 10.0)], share) == pytest.approx(seconds)
