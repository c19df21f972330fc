"""The end of a router: what it waits for no longer ends with a reason."""

import threading
from contextlib import ExitStack

import pytest

from rigs.running_router import RoutedEngine, RunningRouter

QUESTION = {"prompt": "a", "max_tokens": 4}


@pytest.fixture
def engine(model, running):
    return running(RoutedEngine(model))


@pytest.fixture
def router(engine):
    router = RunningRouter([engine.url])
    yield router
    router.close()


def test_a_request_without_an_answer_is_refused(engine, router, caplog):
    answers = []

    def ask():
        with router.client() as client:
            answers.append(client.post("/v1/completions", json=QUESTION))

    router.wait_until_known(1)
    asking = threading.Thread(target=ask)
    with engine.held_engine():
        asking.start()
        router.wait_until(lambda _: router.server.admission.num_open)
        router.close()
        asking.join()
    (answer,) = answers
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == "the server is shutting down"
    assert [record for record in caplog.records if record.exc_info or record.levelname == "ERROR"] == []


def test_a_stream_ends_with_a_reason(engine, router, caplog):
    router.wait_until_known(1)
    with engine.held_after(6), router.client() as client:
        body = {**QUESTION, "max_tokens": 40, "temperature": 0, "stream": True}
        with client.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            router.server.should_exit = True
            rest = [line for line in lines if line]
    assert "the server is shutting down" in rest[-2]
    assert rest[-1] == "data: [DONE]"
    router.close()
    assert [record for record in caplog.records if record.exc_info or record.levelname == "ERROR"] == []


def test_the_streams_of_an_engine_that_is_asked_to_end_go_on(model, running):
    """It takes no more connections, and its health cannot be asked for: they were cut off within a second."""
    engine = running(RoutedEngine(model, bounds={"shutdown_timeout_s": 600}))
    router = running(RunningRouter([engine.url]))
    router.wait_until_known(1)
    body = {**QUESTION, "max_tokens": 40, "ignore_eos": True, "stream": True}
    with router.client() as client, ExitStack() as held:
        held.enter_context(engine.held_after(6))
        with client.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            engine.ask_to_end()
            router.wait_until(lambda seen: "GET /engine" in seen["engines"][0]["problem"])
            held.close()
            rest = [line for line in lines if line]
    assert '"finish_reason":"length"' in rest[-2]
    assert rest[-1] == "data: [DONE]"
