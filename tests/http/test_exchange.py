"""Clients that are slower than is borne."""

import asyncio
import gc
import json
import re
import socket
import weakref
from contextlib import suppress

import pytest

from octavo.errors import InputError
from octavo.http.admission import Admission
from octavo.http.errors import ApiError
from octavo.http.exchange import ClientGoneError, Exchange
from octavo.http.sockets import open_socket
from octavo.http.whole_events import is_event_stream
from octavo.server import ServerConfig


async def never(*_):
    await asyncio.Event().wait()


def make(receive, send, **bounds):
    return Exchange({"headers": []}, receive, send, ServerConfig(model_name="m", **bounds))


def test_a_client_that_takes_nothing_is_given_up():
    async def events():
        while True:
            yield b"more"

    with pytest.raises(ClientGoneError):
        asyncio.run(make(never, never, send_timeout_s=1e-3).stream(events()))


@pytest.mark.parametrize("how", ["relay", "stream"])
def test_a_client_that_leaves_gets_no_more_of_what_is_there_at_once(how):
    """An engine's pieces come together where a busy router reads them late."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.disconnect"}

    async def pieces():
        for _ in range(1000):
            yield b"more"

    exchange = make(receive, send)
    answering = exchange.relay(200, [], pieces()) if how == "relay" else exchange.stream(pieces())
    with pytest.raises(ClientGoneError):
        asyncio.run(exchange.run(answering))
    assert len(sent) < 10


EVENTS = b'data: {"text": "one"}\n\n: a comment\r\n\r\ndata: {"text": "two"}\n\ndata: {"text": "three"}\n\n'
HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]


def relayed(pieces, headers=HEADERS):
    """What a client gets of an answer that comes in these pieces, and ends with an error if one of them is None."""
    sent = []

    async def send(message):
        sent.append(message)

    async def answer():
        for piece in pieces:
            if piece is None:
                raise ApiError(502, "it broke off")
            yield piece

    async def relay():
        exchange = make(never, send)
        try:
            await exchange.relay(200, headers, answer())
        except ApiError as error:
            await exchange.refuse(error)

    asyncio.run(relay())
    return [message["body"] for message in sent[1:]]


def events_in(body):
    """As a client reads them that knows no field but data."""
    lines = body.decode().splitlines()
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_an_answer_that_breaks_off_anywhere_ends_with_an_error_that_can_be_read(size):
    """After `da` the error was a field of no meaning, and the answer seemed to have ended well."""
    for length in range(len(EVENTS) + 1):
        begun = EVENTS[:length]
        body = b"".join(relayed([*(begun[at : at + size] for at in range(0, length, size)), None]))
        *texts, error, done = events_in(body)
        assert texts == [f'{{"text": "{text}"}}' for text in ("one", "two", "three")[: len(texts)]]
        assert len(texts) == begun.count(b"}\n\n")
        assert "it broke off" in json.loads(error)["error"]["message"]
        assert done == "[DONE]"


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("answer", [EVENTS, EVENTS + b"data: unfinished", b"", EVENTS.replace(b"\n", b"\r")])
def test_an_answer_that_ends_well_is_handed_on_as_it_is_and_each_event_at_once(size, answer):
    parts = relayed([answer[at : at + size] for at in range(0, len(answer), size)])
    assert b"".join(parts) == answer
    if size == 1 and answer is EVENTS:
        assert parts[:-1] == re.findall(rb".*?\n\r?\n", answer, re.DOTALL)


def test_an_event_that_is_too_long_to_be_held_is_ended_before_the_error():
    begun = b"data: " + bytes(3 << 20)
    body = b"".join(relayed([begun, b"more", None]))
    assert body.startswith(begun + b"\n\ndata: ")
    assert events_in(body)[-1] == "[DONE]"


@pytest.mark.parametrize("header", [(b"content-encoding", b"gzip"), (b"content-type", b"application/json")])
def test_what_is_no_plain_stream_of_events_is_not_held_back(header):
    pieces = [b"some", b"thing"]
    assert relayed(pieces, [*HEADERS, header]) == [*pieces, b""]


@pytest.mark.parametrize("num_bytes", [0, 1, 256 << 10, (256 << 10) + 1, 1 << 20])
def test_a_long_answer_goes_in_parts_each_of_which_a_slow_client_has_the_time_for(num_bytes):
    sent, answer = [], bytes(num_bytes)

    async def send(message):
        sent.append(message)

    asyncio.run(make(never, send).answer(answer))
    parts = [message["body"] for message in sent[1:]]
    assert b"".join(parts) == answer
    assert max(map(len, parts)) <= 256 << 10
    assert [message["more_body"] for message in sent[1:]] == [True] * (len(parts) - 1) + [False]


def test_a_body_that_never_comes():
    admission = Admission(most_requests=1, most_bytes=10)

    async def read():
        with admission.enter() as ticket:
            await make(never, never, body_timeout_s=1e-3).read_body(ticket)

    with pytest.raises(ApiError) as refused:
        asyncio.run(read())
    assert refused.value.status == 408
    assert (admission.num_open, admission.num_bytes) == (0, 0)


def test_what_a_refused_request_had_goes_before_garbage_is_collected():
    """It may have megabytes, and an idle server collects none for long."""

    class Body:
        pass

    async def read(body):
        assert body is not None
        raise ApiError(400, "not this")

    async def serve(body):
        await make(never, never).run(read(body))

    async def ask():
        body = Body()
        gone = weakref.ref(body)
        serving = serve(body)
        del body
        with suppress(ApiError):
            await serving
        return gone

    gc.disable()
    try:
        assert asyncio.run(ask())() is None
    finally:
        gc.enable()


def test_an_answer_that_is_given_up_is_cancelled():
    ended = []

    async def gone():
        return {"type": "http.disconnect"}

    async def answering():
        try:
            await never()
        finally:
            ended.append(True)

    async def run():
        await make(gone, never).run(answering())

    with pytest.raises(ClientGoneError):
        asyncio.run(run())
    assert ended == [True]


def test_answers_leave_at_once():
    """Sockets that asyncio does not take for TCP wait 40 ms for more to send."""
    with open_socket(ServerConfig(model_name="m", port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize(
    "wrong",
    [
        {"model_name": ""},
        {"port": 70000},
        {"api_key": ""},
        {"api_key": "ä"},
        {"max_body_bytes": 0},
        {"shutdown_timeout_s": -1},
        {"shutdown_timeout_s": float("inf")},
        {"shutdown_timeout_s": float("nan")},
    ],
)
def test_wrong_configurations(wrong):
    with pytest.raises(InputError):
        ServerConfig(**{"model_name": "m", **wrong})


@pytest.mark.parametrize("name", ["text/event-stream", "Text/Event-Stream; charset=utf-8"])
def test_a_stream_of_events_is_known_however_its_type_is_written(name):
    assert is_event_stream(name)
    assert not is_event_stream("application/json")
