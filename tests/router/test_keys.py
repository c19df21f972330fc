"""Keys on both sides of the router, and addresses that cannot be read."""

import httpx
import pytest
from hypothesis import given, strategies as st

from octavo.engine import save_tiny_model
from octavo.errors import InputError
from octavo.http import Access, EngineFacts, read_tenants
from octavo.router import EngineAddress, RouterConfig, RouterServer
from rigs.access import check_access
from rigs.running_router import RoutedEngine, RunningRouter
from rigs.running_server import MODEL


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys") / "model"
    save_tiny_model("llama", folder)
    return folder


def test_an_unknown_path_is_told_as_json(running):
    router = running(RunningRouter(["http://127.0.0.1:9"]))
    with router.client() as client:
        answer = client.get("/nothing")
        assert (answer.status_code, answer.json()["error"]["message"]) == (404, "GET /nothing: not found")
        assert client.get("/v1/completions").status_code == 405
        unreachable = client.post("/v1/completions", json={"prompt": "a"})
    assert (unreachable.status_code, unreachable.json()["error"]["message"]) == (503, "no engine can be reached")


def ask(router, **headers):
    with router.client(headers=headers) as client:
        return client.post("/v1/completions", json={"model": MODEL, "prompt": [5] * 20, "max_tokens": 1})


def test_the_router_knows_the_engines_key(folder, running):
    engine = running(RoutedEngine(folder, api_key="inside"))
    router = running(RunningRouter([engine.url], api_key="outside", engine_api_key="inside"))
    with router.client() as client:
        while client.get("/health").status_code != 200:
            pass
    assert ask(router).status_code == 401
    assert ask(router, authorization="Bearer inside").status_code == 401
    assert ask(router, authorization="Bearer outside").status_code == 200


def test_a_tenants_requests_are_found_again_and_nobody_elses(folder, running, tmp_path):
    file = tmp_path / "tenants.yaml"
    file.touch(mode=0o600)
    file.write_text("- {key: sk-a, tenant: a}\n- {key: sk-b, tenant: b}\n")
    engine = running(RoutedEngine(folder, api_key="inside", tenants=read_tenants(file)))
    router = running(RunningRouter([engine.url], tenants=file, api_key="own", engine_api_key="inside"))
    own = {"headers": {"authorization": "Bearer own"}}
    with router.client(**own) as client:
        while not all(one["knows_all_blocks"] for one in client.get("/fleet").json()["engines"]):
            pass
        seen = []
        for key in ("sk-a", "sk-a", "sk-b", "own", "own"):
            answer = ask(router, authorization=f"Bearer {key}")
            decision = client.get("/fleet").json()["decisions"][-1]
            details = answer.json()["usage"]["prompt_tokens_details"]
            seen.append((decision["choice"]["resumed_tokens"], details["cached_tokens"]))
            told = engine.num_published()
            while client.get("/fleet").json()["engines"][0]["event_batches"] < told:
                pass
    assert seen == [(0, 0), (16, 16), (0, 0), (0, 0), (16, 16)]
    assert ask(router, authorization="Bearer sk-c").status_code == 401
    with router.client(headers={"authorization": "Bearer sk-a"}) as client:
        assert client.post(f"/fleet/{engine.name}/drain").status_code == 403


FACTS = EngineFacts(
    model="m", max_model_len=1, hash_algorithm="sha256_cbor", hash_seed="", events="tcp://*:5557", replay="tcp://*:5558"
)


@pytest.mark.parametrize(
    ("text", "events", "replay"),
    [
        ("http://10.0.0.5:8000", "tcp://10.0.0.5:5557", "tcp://10.0.0.5:5558"),
        ("http://[fe80::1]:8000", "tcp://[fe80::1]:5557", "tcp://[fe80::1]:5558"),
        ("http://a:1,events=tcp://b:2", "tcp://b:2", "tcp://a:5558"),
        ("http://a:1/,events=ipc:///x,replay=ipc:///y", "ipc:///x", "ipc:///y"),
    ],
)
def test_where_the_events_are(text, events, replay):
    source = EngineAddress.parse(text).source(FACTS.events, FACTS.replay)
    assert (source.endpoint, source.replay_endpoint) == (events, replay)


UNREADABLE = [
    *("", "a:8000", "ftp://a", "http://", "http://a,events", "http://a,evens=tcp://b:1"),
    *("http://a,events=b:1", "http://a,events=tcp://b:*", "http://a,replay=tcp://b", "http://a,hash=md5"),
    *(
        "http://a:b",
        "http://[::1",
        "http://a:99999",
        "http://a:0",
        "http://a?b",
        "http://a#",
        "dns://[::1",
        "dns://a:0",
        "dns://:1",
    ),
]


@pytest.mark.parametrize("text", UNREADABLE)
def test_an_address_that_cannot_be_read_is_named(text):
    with pytest.raises(InputError, match="engine"):
        EngineAddress.parse(text)


@given(scheme=st.sampled_from(["http", "https", "dns"]), rest=st.text("a1.:[]@/?#%é\0 -", max_size=12))
def test_an_address_that_is_taken_can_be_asked(scheme, rest):
    try:
        address = EngineAddress.parse(f"{scheme}://{rest}")
    except InputError:
        return
    if address.is_name:
        address = address.at("10.0.0.5")
    assert httpx.Request("GET", f"{address.url}/health").url.path.endswith("/health")
    assert address.source("tcp://*:5557", None) is not None


def test_each_rank_is_an_engine():
    text = "http://a:1,ranks=2,events=tcp://a:5557,replay=tcp://a:6557,name=x"
    ranks = EngineAddress.parse_all([text, "http://b:1"])
    assert [(one.name, one.rank, one.url) for one in ranks] == [
        ("x/0", 0, "http://a:1"),
        ("x/1", 1, "http://a:1"),
        ("b:1", None, "http://b:1"),
    ]
    source = ranks[1].source(None, None)
    assert (source.endpoint, source.replay_endpoint) == ("tcp://a:5558", "tcp://a:6558")


@pytest.mark.parametrize(
    "text",
    ["http://a,ranks=2", "http://a,ranks=0,events=tcp://a:1", "http://a,ranks=many", "http://a,ranks=" + "9" * 5000],
)
def test_ranks_that_cannot_be_read_are_named(text):
    with pytest.raises(InputError, match="ranks"):
        EngineAddress.parse_all([text])


def test_two_engines_of_one_name_are_refused():
    with pytest.raises(InputError, match="two engines are called 'a:1'"):
        RouterServer(RouterConfig(engines=("http://a:1", "http://a:1")))


def test_a_router_without_engines_is_refused():
    with pytest.raises(InputError, match="engine"):
        RouterServer(RouterConfig(engines=()))


def drain(router, key=None, **headers):
    shown = {} if key is None else {"authorization": f"Bearer {key}"}
    with router.client(headers={**shown, **headers}) as client:
        return client.post("/fleet/127.0.0.1:9/drain").status_code


def test_a_client_drains_no_engine(running):
    router = running(RunningRouter(["http://127.0.0.1:9"], api_key="clients", operator_api_key="mine"))
    assert [drain(router, key) for key in (None, "clients", "mine")] == [401, 403, 200]


def test_without_keys_this_machine_drains_engines_and_no_other(running):
    router = running(RunningRouter(["http://127.0.0.1:9"]))
    assert drain(router, **{"x-forwarded-for": "10.0.0.9"}) == 403
    assert drain(router) == 200


ACCESS = {
    **dict.fromkeys(["/", "/health"], Access.OPEN),
    **dict.fromkeys(["/v1/completions", "/v1/chat/completions", "/v1/responses"], Access.OWN),
    **dict.fromkeys(["/v1/models", "/v1/models/{name:path}"], Access.OWN),
    **dict.fromkeys(["/metrics", "/fleet"], Access.READS_ALL),
    "/fleet/{name:path}/drain": Access.CHANGES_ALL,
}


@pytest.mark.parametrize("operator", ["own", "root"])
def test_a_tenants_key_opens_what_is_the_tenants_own(running, tmp_path, operator):
    file = tmp_path / "tenants.yaml"
    file.touch(mode=0o600)
    file.write_text("- {key: sk-a, tenant: a}\n")
    keys = {"api_key": "own"} if operator == "own" else {"api_key": "own", "operator_api_key": operator}
    router = running(RunningRouter(["http://127.0.0.1:9"], tenants=file, **keys))
    check_access(router.server.config.app.routes, router, ACCESS, tenant="sk-a", operator=operator)
    if operator == "root":
        check_access(router.server.config.app.routes, router, ACCESS, tenant="own", operator=operator)


def test_a_name_that_no_header_carries_is_refused():
    with pytest.raises(InputError, match="its name must be printable: it stands in the header of each answer"):
        EngineAddress.parse("http://a:1,name=a\nb")


def test_spaces_beside_commas_belong_to_nothing():
    """A name with one at its end made each answer a broken connection."""
    addresses = EngineAddress.parse_all(["http://a:1,name=one , http://b:1, name=two, seed=7"])
    assert [(address.url, address.name) for address in addresses] == [("http://a:1", "one"), ("http://b:1", "two")]
    assert addresses[1].options == {"seed": "7"}


def test_a_password_is_asked_with_and_told_to_nobody():
    """An engine's name stands in the header of each answer."""
    address = EngineAddress.parse("http://user:secret@[::1]:8000/base")
    assert httpx.URL(address.url).password == "secret"
    assert (address.name, address.shown_url) == ("[::1]:8000", "http://[::1]:8000/base")
    with pytest.raises(InputError, match="write dns://NAME:PORT"):
        EngineAddress.parse("dns://user:secret@engines:8000")
