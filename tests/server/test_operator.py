"""What tells of all clients is the operator's, and so is what changes a server for all of them."""

import asyncio

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from octavo.http import Access, Gate, Tenant
from rigs.access import check_access
from rigs.running_server import serving

TENANT = Tenant(key="sk-a", tenant="a")
DONE = PlainTextResponse("done")
ROUTES = {
    Access.OPEN: [Route("/hello", DONE)],
    Access.OWN: [Route("/chat", DONE), Route("/both", DONE, methods=["GET"])],
    Access.READS_ALL: [Route("/metrics", DONE)],
    Access.CHANGES_ALL: [Route("/drain", DONE), Route("/both", DONE, methods=["POST"])],
}


def post(path, *, key=None, client="127.0.0.1", headers=(), **keys):
    """The status of a request from somewhere, through a gate with these keys."""
    gate = Gate(
        DONE,
        routes=ROUTES,
        own_hosts=("own",),
        is_crowded=lambda: False,
        **{"api_key": None, **keys},
    )
    shown = {} if key is None else {"authorization": f"Bearer {key}"}

    async def ask():
        transport = httpx.ASGITransport(gate, client=(client, 5))
        async with httpx.AsyncClient(transport=transport, base_url="http://own") as http:
            return (await http.post(path, headers={**shown, **dict(headers)})).status_code

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("keys", "shown", "statuses"),  # of /hello, /chat, and of what is the operator's
    [
        ({"api_key": "own"}, "own", (200, 200, 200)),
        ({"api_key": "own"}, None, (200, 401, 401)),
        ({"api_key": "own"}, "other", (200, 401, 401)),
        ({"api_key": "own", "tenants": [TENANT]}, "own", (200, 200, 200)),
        ({"api_key": "own", "tenants": [TENANT]}, "sk-a", (200, 200, 403)),
        ({"tenants": [TENANT]}, "sk-a", (200, 200, 403)),
        ({"tenants": [TENANT]}, None, (200, 401, 403)),
        ({"api_key": "own", "operator_key": "root"}, "own", (200, 200, 403)),
        ({"api_key": "own", "operator_key": "root"}, "root", (200, 200, 200)),
        ({"tenants": [TENANT], "operator_key": "root"}, "root", (200, 200, 200)),
        ({"operator_key": "root"}, None, (200, 200, 401)),
        ({"operator_key": "root"}, "root", (200, 200, 200)),
        ({}, None, (200, 200, 200)),
    ],
)
def test_which_key_opens_what(keys, shown, statuses):
    hello, chat, operators = statuses
    assert post("/hello", key=shown, **keys) == hello
    assert post("/chat", key=shown, **keys) == chat
    assert post("/metrics", key=shown, **keys) == operators
    assert post("/drain", key=shown, **keys) == operators
    assert post("/both", key=shown, **keys) == operators, "the strictest of a path's routes"
    assert post("/nowhere", key=shown, **keys) == chat


@pytest.mark.parametrize(
    ("client", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("::ffff:127.0.0.1", {}, 200),
        ("10.0.0.9", {}, 403),
        ("somewhere", {}, 403),
        ("127.0.0.1", {"x-forwarded-for": "10.0.0.9"}, 403),
        ("127.0.0.1", {"origin": "http://evil"}, 403),
    ],
)
def test_without_keys_it_must_come_from_the_same_machine(client, headers, status):
    assert post("/drain", client=client, headers=headers) == status


def test_what_is_everybodys_stays_so():
    for path in ("/chat", "/metrics"):
        assert post(path, client="10.0.0.9") == 200
    assert post("/chat", client="10.0.0.9", operator_key="root") == 200


OWN = {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/models", "/v1/models/{name:path}"}
ACCESS = {
    **dict.fromkeys(["/", "/health"], Access.OPEN),
    **dict.fromkeys([*OWN, "/tokenize", "/detokenize", "/why/{request_id}"], Access.OWN),
    **dict.fromkeys(["/metrics", "/plan", "/engine", "/load", "/state", "/history"], Access.READS_ALL),
    "/reset_prefix_cache": Access.CHANGES_ALL,
}


def test_a_tenants_key_opens_what_is_the_tenants_own(model_folder):
    with serving(model_folder, api_key="own", tenants=[TENANT]) as server:
        check_access(server.server.config.app.routes, server, ACCESS, tenant="sk-a", operator="own")
