"""What a router says of engines that do not answer, and of those that it is told to leave alone."""

import asyncio
import errno
import logging
import time
from http import HTTPStatus
from itertools import pairwise
from random import Random

import httpx
import msgspec
import pytest

from octavo.errors import InputError
from octavo.events import PublishedPlan, Resync, ResyncReason, Subscriber
from octavo.http import ApiError, EngineFacts, Exchange
from octavo.router import EngineAddress, Indexes, LearningFeed, Member, PromptReader, RouterConfig, hints_in
from octavo.router.facts import read_models
from octavo.router.fleet import Fleet
from octavo.router.following import pause_s
from octavo.router.listener import listen
from octavo.router.proxy import Proxy
from octavo.specs import FullAttentionSpec

ENGINE = "10.0.0.5:8000"


@pytest.fixture(autouse=True)
def _all_lines(caplog):
    caplog.set_level(logging.INFO)


def fleet_of(client):
    return Fleet([EngineAddress.parse(f"http://{ENGINE}")], client)


async def problem_of(answer):
    """The first warning of an engine, or the end of the fleet."""
    logged, logger = Logged(level=logging.WARNING), logging.getLogger("octavo.router")
    logger.addHandler(logged)
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        running = asyncio.create_task(fleet_of(client).run())
        waiting = asyncio.create_task(logged.lines.get())
        await asyncio.wait([waiting, running], return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        await asyncio.wait([running])
        line = await waiting if waiting.done() else running.result()
    logger.removeHandler(logged)
    return line


class Logged(logging.Handler):
    """Lines as they are logged."""

    def __init__(self, *, level):
        super().__init__(level)
        self.lines = asyncio.Queue()

    def emit(self, record):
        self.lines.put_nowait(record.getMessage())


def test_the_end_of_an_engine_is_told_once_though_it_breaks_many_requests(caplog):
    fleet = fleet_of(httpx.AsyncClient())
    member = fleet.members[ENGINE]
    member.lost = ""
    for reason in ("Server disconnected without sending a response.", "the connection broke", "peer closed"):
        fleet.missed(member, reason)
    assert caplog.messages == [f"engine {ENGINE} is lost: Server disconnected without sending a response."]
    assert member.problem == "Server disconnected without sending a response."


def test_engines_are_asked_one_after_the_other_and_many_of_them_more_rarely():
    """Of 400 engines that were asked at one moment each second, requests waited for up to 0.3 s."""
    random = Random(0)
    ends = sorted(sum(pause_s(100, random) for _ in range(10)) for _ in range(100))
    assert 0 < max(b - a for a, b in pairwise(ends)) < 0.3
    assert ends[-1] - ends[0] > 1
    assert pause_s(1, random) < 1.5
    assert pause_s(1000, random) > 2.5


def test_a_request_that_takes_long_to_end_is_ended_once(monkeypatch):
    """The fleet asks for the engine's health again meanwhile."""
    monkeypatch.setattr("octavo.router.following.HEALTH_INTERVAL_S", 0)

    async def end_a_request():
        asked, is_ending, may_end = 0, asyncio.Event(), asyncio.Event()

        def fail(_):
            nonlocal asked
            asked += is_ending.is_set()
            if asked == 3:
                may_end.set()
            return httpx.Response(500)

        async def wait_for_an_answer(fleet):
            async with fleet.while_alive(fleet.members[ENGINE]):
                try:
                    await asyncio.Event().wait()
                finally:
                    is_ending.set()
                    await may_end.wait()

        async with httpx.AsyncClient(transport=httpx.MockTransport(fail)) as client:
            fleet = fleet_of(client)
            running = asyncio.create_task(fleet.run())
            request = asyncio.create_task(wait_for_an_answer(fleet))
            await asyncio.wait([request, running], return_when=asyncio.FIRST_COMPLETED)
            assert not running.done()
            running.cancel()
            await asyncio.wait([running])
            with pytest.raises(httpx.ReadError, match="500"):
                await request

    asyncio.run(end_a_request())


def test_an_engine_is_not_lost_where_the_router_may_open_no_more_files(monkeypatch, caplog):
    """Its requests go on, and it gets new ones on connections that it has. It is told once."""
    monkeypatch.setattr("octavo.router.following.HEALTH_INTERVAL_S", 0)

    async def look_for_its_health():
        num_asked, enough = 0, asyncio.Event()

        def fail(request):
            nonlocal num_asked
            if request.url.path == "/engine" and not num_asked:
                return httpx.Response(200, content=msgspec.json.encode(facts_of("m")))
            num_asked += 1
            if num_asked == 1:
                return httpx.Response(200)
            if num_asked == 5:
                enough.set()
            raise httpx.ConnectError("All connection attempts failed") from OSError(errno.EMFILE, "Too many open files")

        async with httpx.AsyncClient(transport=httpx.MockTransport(fail)) as client:
            fleet = fleet_of(client)
            member = fleet.members[ENGINE]
            running = asyncio.create_task(fleet.run())
            async with fleet.while_alive(member):
                await enough.wait()
                assert member.is_reachable
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(look_for_its_health())
    told = "the router can open no connection (Too many open files): raise the limit of open files (ulimit -n)"
    assert caplog.messages.count(told) == 1
    assert not any("is lost" in message for message in caplog.messages)


def test_a_request_for_which_the_router_may_open_no_file_is_refused_as_too_many():
    async def ask():
        def fail(_):
            raise httpx.ConnectError("All connection attempts failed") from ExceptionGroup(
                "one for each address", [OSError(errno.EMFILE, "Too many open files")]
            )

        async with httpx.AsyncClient(transport=httpx.MockTransport(fail)) as client:
            fleet = fleet_of(client)
            fleet.members[ENGINE].lost = ""
            exchange = Exchange({"headers": []}, None, None, RouterConfig(engines=(f"http://{ENGINE}",)))
            with pytest.raises(ApiError, match="the router can open no more connections") as refused:
                await Proxy(fleet, lambda _: None).answer(exchange, "/v1/completions", b'{"prompt": [1], "model": "m"}')
            assert refused.value.status == 429
            assert fleet.ready == [ENGINE]

    asyncio.run(ask())


@pytest.mark.parametrize("is_left_by_all", [False, True])
def test_a_model_that_an_engine_has_no_more_is_asked_of_another_one(is_left_by_all):
    """Its names are asked for every 10 s."""
    sent = []

    def answer(request):
        if request.url.host == "10.0.0.5" or is_left_by_all:
            refusal = {
                "message": "The model `m` does not exist.",
                "type": "NotFoundError",
                "param": "model",
                "code": 404,
            }
            return httpx.Response(404, content=stream({"error": refusal}))
        return httpx.Response(200, content=stream({}))

    async def stream(body):
        yield msgspec.json.encode(body)

    async def send(message):
        sent.append(message)

    async def ask():
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            urls = ("http://10.0.0.5:8000", "http://10.0.0.6:8000")
            fleet = Fleet(map(EngineAddress.parse, urls), client)
            for member in fleet.members.values():
                member.lost, member.facts = "", EngineFacts(model="m", max_model_len=9, hash_algorithm="", hash_seed="")
            proxy = Proxy(fleet, lambda _: None)
            for number in range(20):
                exchange = Exchange({"headers": []}, None, send, RouterConfig(engines=urls))
                body = msgspec.json.encode({"prompt": [number], "model": "m"})
                try:
                    await proxy.answer(exchange, "/v1/completions", body)
                except ApiError as error:
                    sent.append({"type": "http.response.start", "status": error.status, "param": error.param})
            return [member.has_begun_anew for member in fleet.members.values()]

    assert asyncio.run(ask()) == [True, is_left_by_all], "whose names are asked for at once"
    starts = [message for message in sent if message["type"] == "http.response.start"]
    assert {start["status"] for start in starts} == {404 if is_left_by_all else 200}
    assert not is_left_by_all or {start["param"] for start in starts} == {"model"}


def test_an_engine_that_never_answers_is_told_in_words(monkeypatch):
    monkeypatch.setattr("octavo.router.fleet._HEALTH_TIMEOUT_S", 0)

    async def never(_):
        await asyncio.Event().wait()

    assert asyncio.run(problem_of(never)) == f"engine {ENGINE} is lost: GET /engine: no answer in 0 s"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpx.ReadError(""), "the connection broke"),
        (httpx.ConnectTimeout(""), "no connection in time"),
        (httpx.ConnectError("All connection attempts failed"), "All connection attempts failed"),
    ],
)
def test_an_error_without_a_message_is_told_in_words(error, words):
    def fail(_):
        raise error

    assert asyncio.run(problem_of(fail)) == f"engine {ENGINE} is lost: GET /engine: {words}"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "it answers 401 Unauthorized: give the engines' key with --engine-api-key"),
        (500, "it answers 500 Internal Server Error"),
    ],
)
def test_a_refusal_is_told_in_one_line(status, words):
    assert asyncio.run(problem_of(lambda _: httpx.Response(status))) == f"engine {ENGINE} is lost: GET /engine: {words}"


@pytest.mark.parametrize("answer", [b'{"model": "\xff"}', b'{"a": ' * 100_000, b"[]", b"9" * 5000, b"\xff"])
def test_an_answer_that_nobody_can_read_loses_the_engine_and_not_the_fleet(answer):
    line = asyncio.run(problem_of(lambda _: httpx.Response(200, content=answer)))
    assert line.startswith(f"engine {ENGINE} is lost: GET /engine: ")


def test_an_answer_that_never_ends_is_read_no_further():
    async def endless():
        while True:
            yield b"{" * (1 << 20)

    line = asyncio.run(problem_of(lambda _: httpx.Response(200, content=endless())))
    assert line == f"engine {ENGINE} is lost: GET /engine: its answer exceeds 16,777,216 bytes"


@pytest.mark.parametrize("path", ["/engine", "/load"])
def test_what_nobody_foresaw_of_one_engine_ends_no_other_ones_following(path, monkeypatch, caplog):
    """It did: each engine stayed as it was last known, and a lost one did not come back."""
    monkeypatch.setattr("octavo.router.following.HEALTH_INTERVAL_S", 0)
    bad, good = "10.0.0.5:8000", "10.0.0.6:8000"
    is_told, is_asked = asyncio.Event(), asyncio.Event()

    def answer(request):
        if request.url.netloc.decode() == bad and request.url.path == path:
            is_told.set()
            raise RuntimeError("nobody foresaw this")
        if is_told.is_set() and request.url.netloc.decode() == good and "foresaw this" in fleet.members[bad].lost:
            is_asked.set()
        status = HTTPStatus.NOT_FOUND if request.url.path == "/load" else HTTPStatus.OK
        return httpx.Response(status, content=msgspec.json.encode(facts_of("m")))

    async def run():
        nonlocal fleet
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            fleet = Fleet(EngineAddress.parse_all([f"http://{bad}", f"http://{good}"]), client)
            running, waiting = asyncio.create_task(fleet.run()), asyncio.create_task(is_asked.wait())
            await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
            assert not running.done()
            running.cancel()
            await asyncio.wait([running])

    fleet = None
    asyncio.run(run())
    assert len([record for record in caplog.records if record.exc_info]) == 1


@pytest.mark.parametrize("name", ["api_key", "operator_api_key", "engine_api_key"])
def test_a_key_that_no_header_carries_is_refused(name):
    with pytest.raises(InputError, match=f"^{name}: the API key must be printable ASCII"):
        RouterConfig(**{name: "\N{SNOWMAN}"})


def test_an_engine_without_replay_is_told(tmp_path):
    full = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=4)
    facts = EngineFacts(
        model="m",
        max_model_len=64,
        hash_algorithm="sha256_cbor",
        hash_seed="0",
        plan=PublishedPlan.of_specs([full], hash_block_size=16),
        events=f"ipc://{tmp_path}/events",
    )
    line = asyncio.run(problem_of(lambda _: httpx.Response(200, content=msgspec.json.encode(facts))))
    assert line.startswith(f"engine {ENGINE}: its events have no replay")


async def tries_to_listen(monkeypatch, tmp_path, errors):
    """Whether the engine's events are read after these errors, which are none of the engine's."""
    opened = asyncio.Event()

    class FailsAtFirst(Subscriber):
        def start(self):
            if errors:
                raise errors.pop(0)
            opened.set()
            return super().start()

    monkeypatch.setattr("octavo.router.listener.Subscriber", FailsAtFirst)
    monkeypatch.setattr("octavo.router.listener._FIRST_PAUSE_S", 0.0)
    address = EngineAddress.parse(f"http://{ENGINE},events=ipc://{tmp_path}/events")
    member = Member(address=address, learns_plan=True)
    listening = asyncio.create_task(listen(member, facts_of("m"), Indexes()))
    waiting = asyncio.create_task(opened.wait())
    await asyncio.wait([listening, waiting], return_when=asyncio.FIRST_COMPLETED)
    for task in (listening, waiting):
        task.cancel()
    await asyncio.wait([listening, waiting])
    return opened.is_set()


def test_events_are_read_again_after_an_error_that_is_not_the_engines(monkeypatch, tmp_path, caplog):
    errors = [OSError(errno.EIO, "Input/output error") for _ in range(3)]
    assert asyncio.run(tries_to_listen(monkeypatch, tmp_path, errors))
    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_an_error_after_events_that_went_well_for_long_is_the_first_of_its_kind(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr("octavo.router.listener._LONGEST_PAUSE_S", 0.0)  # so any time is long
    errors = [OSError(errno.EIO, "Input/output error") for _ in range(3)]
    assert asyncio.run(tries_to_listen(monkeypatch, tmp_path, errors))
    assert len([record for record in caplog.records if record.exc_info]) == 3


def test_a_lack_of_files_for_events_is_one_line(monkeypatch, tmp_path, caplog):
    errors = [OSError(errno.EMFILE, "Too many open files") for _ in range(3)]
    assert asyncio.run(tries_to_listen(monkeypatch, tmp_path, errors))
    assert not [record for record in caplog.records if record.exc_info]
    (told,) = [message for message in caplog.messages if "Too many open files" in message]
    assert told.endswith("raise the limit of open files (ulimit -n)")


def test_a_drained_engine_is_logged_when_that_changes(caplog):
    fleet = fleet_of(httpx.AsyncClient())
    for is_draining in (True, True, False):
        fleet.drain(ENGINE, is_draining=is_draining)
    assert caplog.messages == [f"engine {ENGINE} gets no new requests", f"engine {ENGINE} takes requests again"]


async def lives_heard_of(monkeypatch):
    """Of an engine that answers for its health all the time, and whose events begin anew once."""
    monkeypatch.setattr("octavo.router.following.HEALTH_INTERVAL_S", 0.01)
    lives, heard = ["new", "old"], asyncio.Queue()

    async def hear(member, facts, indexes):
        heard.put_nowait(facts.life)
        if facts.life == "old":
            feed = LearningFeed(member, indexes, algorithm="sha256_cbor", learner=None)
            feed.take(Resync(reason=ResyncReason.RECONNECTED, expected=3, got=None))

    def answer(request):
        if request.url.path != "/engine":
            return httpx.Response(200 if request.url.path == "/health" else 404)
        life = lives.pop() if len(lives) > 1 else lives[0]
        return httpx.Response(200, content=msgspec.json.encode(msgspec.structs.replace(facts_of("m"), life=life)))

    monkeypatch.setattr("octavo.router.fleet.listen", hear)
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client, asyncio.timeout(60):
        running = asyncio.create_task(fleet_of(client).run())
        told = [await heard.get(), await heard.get()]
        running.cancel()
        await asyncio.wait([running])
    return told


def test_an_engine_whose_events_begin_anew_is_asked_for_its_facts_though_it_never_seemed_gone(monkeypatch, caplog):
    assert asyncio.run(lives_heard_of(monkeypatch)) == ["old", "new"]
    assert not any("is lost" in message for message in caplog.messages)


async def read_where_the_first_engine(fails, monkeypatch):
    """How a prompt is read by two engines, of which the first one fails as soon as it is asked for tokens."""
    monkeypatch.setattr("octavo.router.fleet._HEALTH_TIMEOUT_S", 0.05)
    monkeypatch.setattr("octavo.router.following.HEALTH_INTERVAL_S", 0.01)
    has_failed = False

    async def answer(request):
        nonlocal has_failed
        is_first, asks = request.url.host == "a", request.url.path == "/tokenize"
        has_failed |= is_first and asks
        if is_first and has_failed:
            await fails()
        if asks:
            return httpx.Response(200, json={"tokens": [1, 2, 3]})
        return httpx.Response(200, content=msgspec.json.encode(facts_of("m")))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        fleet = Fleet([EngineAddress.parse("http://a:1"), EngineAddress.parse("http://b:1")], client)
        for member in fleet.members.values():
            member.lost, member.facts = "", facts_of("m")
        running = asyncio.create_task(fleet.run())
        async with asyncio.timeout(60):
            read = await PromptReader(fleet).read(b'{"model": "m", "messages": []}', {})
        running.cancel()
        await asyncio.wait([running])
    return has_failed, read.prompt.num_tokens


async def break_off():
    raise httpx.ReadError("")


@pytest.mark.parametrize("fails", [asyncio.Event().wait, break_off])
def test_a_prompt_that_an_engine_was_to_read_is_read_by_another_one(fails, monkeypatch):
    assert asyncio.run(read_where_the_first_engine(fails, monkeypatch)) == (True, 3)


def facts_of(model, *adapters, aliases=()):
    return EngineFacts(
        model=model,
        aliases=aliases,
        max_model_len=64,
        hash_algorithm="",
        hash_seed="",
        adapters=dict.fromkeys(adapters, "/somewhere"),
    )


def test_a_request_is_for_the_engines_that_have_its_model():
    fleet = Fleet(EngineAddress.parse_all(f"http://e:1,name={name}" for name in "abc"), httpx.AsyncClient())
    told = {"a": facts_of("large"), "b": facts_of("small", "tuned", aliases=("tiny",)), "c": facts_of("small")}
    for name, facts in told.items():
        fleet.members[name].lost, fleet.members[name].facts = "", facts
    assert fleet.ready_for("large") == ["a"]
    assert fleet.ready_for("small") == ["b", "c"]
    assert fleet.ready_for("tuned") == fleet.ready_for("tiny") == ["b"]
    assert fleet.ready_for("unknown") == fleet.ready_for("") == ["a", "b", "c"]
    fleet.members["a"].lost = "it is gone"
    assert fleet.ready_for("large") == []


@pytest.mark.parametrize(("silent_s", "status"), [(3500.0, 503), (3700.0, 404)])
def test_an_engine_that_was_never_there_has_no_model_that_is_asked_for(silent_s, status):
    fleet = Fleet(EngineAddress.parse_all(["http://one:8000", "http://two:8000"]), httpx.AsyncClient())
    told, silent = fleet.members.values()
    told.facts, silent.added_at = facts_of("m"), time.monotonic() - silent_s
    assert fleet.unknown_model("other").status == status


@pytest.mark.parametrize(("told", "longest"), [((8, 4), 8), ((8, 0), 9), ((8, None), 8), ((None, None), 9)])
def test_a_prompt_longer_than_any_engine_takes_is_not_hashed(told, longest):
    fleet = Fleet(EngineAddress.parse_all(["http://one:8000", "http://two:8000"]), httpx.AsyncClient())
    for member, most in zip(fleet.members.values(), told, strict=True):
        member.facts = None if most is None else msgspec.structs.replace(facts_of("m"), max_model_len=most)

    def read(num_tokens):
        return asyncio.run(PromptReader(fleet).read(b'{"prompt": %a}' % ([1] * num_tokens), {})).prompt.num_tokens

    assert [read(num_tokens) for num_tokens in (longest, 9)] == [longest, 9 if longest == 9 else 0]


@pytest.mark.parametrize("priority", ['"high"', "null", "1.5", "true", "[[]]"])
def test_a_priority_that_is_none_leaves_the_model_known(priority):
    hints = hints_in(b'{"model": "tuned", "priority": %s}' % priority.encode())
    assert (hints.model, hints.priority) == ("tuned", 0)


@pytest.mark.parametrize(("stream", "is_stream"), [("true", True), ("false", False), ("null", False), ("1", False)])
def test_a_stream_is_known_by_its_request(stream, is_stream):
    assert hints_in(b'{"model": "tuned", "stream": %s}' % stream.encode()).is_stream is is_stream


@pytest.mark.parametrize("status", [200, 418, 499, 520])
def test_an_answer_is_handed_on_whatever_its_status(status):
    """Proxies before engines have statuses of their own."""
    sent = []

    async def send(message):
        sent.append(message)

    async def body():
        yield b"from a proxy"

    async def answer():
        transport = httpx.MockTransport(lambda _: httpx.Response(status, content=body()))
        async with httpx.AsyncClient(transport=transport) as client:
            fleet = fleet_of(client)
            fleet.members[ENGINE].lost = ""
            exchange = Exchange({"headers": []}, None, send, RouterConfig(engines=(f"http://{ENGINE}",)))
            await Proxy(fleet, lambda _: None).answer(exchange, "/v1/completions", b'{"prompt": [5]}')

    asyncio.run(answer())
    assert (sent[0]["status"], sent[1]["body"]) == (status, b"from a proxy")


def answers_of(answer, num_engines, most=10):
    """What a client gets of engines that all answer so, or the refusal, and how many of them were asked."""
    asked, sent = [], []

    async def send(message):
        sent.append(message)

    async def handle(request):
        asked.append(request.url.host)
        return answer(len(asked))

    async def ask():
        addresses = EngineAddress.parse_all(f"http://engine{number}:8000" for number in range(num_engines))
        async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as client:
            fleet = Fleet(addresses, client)
            for member in fleet.members.values():
                member.lost = ""
            exchange = Exchange({"headers": []}, None, send, RouterConfig(engines=("http://engine0:8000",)))
            async with asyncio.timeout(most):
                await Proxy(fleet, lambda _: None).answer(exchange, "/v1/completions", b'{"prompt": [5]}')

    try:
        asyncio.run(ask())
    except ApiError as error:
        return error.status, len(asked)
    return sent[0]["status"], len(asked)


def fails_with(error):
    def answer(_):
        raise error

    return answer


@pytest.mark.parametrize(
    ("error", "num_asked"),
    [
        (httpx.ReadError(""), 3),
        (httpx.RemoteProtocolError("Server disconnected without sending a response."), 3),
        (httpx.ConnectError("refused"), 8),
        (httpx.ConnectTimeout(""), 8),
    ],
)
def test_a_request_that_breaks_off_at_several_engines_ends_no_more_of_them(error, num_asked):
    """One that ends every engine which gets it, say. An engine that cannot be reached never got it."""
    assert answers_of(fails_with(error), 8) == (HTTPStatus.BAD_GATEWAY, num_asked)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_fleet_that_has_too_much_to_do_refuses_a_request_some_times_and_not_once_for_each_engine(status):
    assert answers_of(lambda _: httpx.Response(status, content=whole()), 30) == (status, 8)
    assert answers_of(lambda _: httpx.Response(status, content=whole()), 5) == (status, 5)


async def nothing_more():
    yield b"busy"
    await asyncio.Event().wait()


async def no_end():
    while True:
        yield b"busy" * 1000


async def half():
    yield b"busy"
    raise httpx.ReadError("")


async def whole():
    yield b"{}"


@pytest.mark.parametrize("body", [nothing_more, no_end, half])
def test_no_request_waits_for_the_end_of_a_refusal(body):
    """Another engine may be free."""

    def answer(number):
        return httpx.Response(503, content=body()) if number == 1 else httpx.Response(200, content=whole())

    assert answers_of(answer, 2) == (HTTPStatus.OK, 2)


def test_all_names_that_vllm_serves_a_model_under_are_told():
    cards = [{"id": name, "root": "/m", "parent": None, "max_model_len": 64} for name in ("large", "large-v2")]
    cards.append({"id": "tuned", "root": "/adapter", "parent": "large"})
    answer = httpx.Response(200, json={"data": cards}, request=httpx.Request("GET", "http://e"))
    facts = read_models(answer, EngineAddress.parse("http://e:1"))
    assert (facts.model, facts.aliases, facts.adapters) == ("large", ("large-v2",), {"tuned": "/adapter"})
