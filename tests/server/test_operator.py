"""What changes a server for everybody is its operator's."""

import asyncio

import httpx
import pytest
from starlette.responses import PlainTextResponse

from octavo.server import Gate, Tenant

TENANT = Tenant(key="sk-a", tenant="a")


def post(path, *, key=None, client="127.0.0.1", headers=(), **keys):
    """The status of a request from somewhere, through a gate with these keys."""
    gate = Gate(
        PlainTextResponse("done"),
        own_hosts=("own",),
        is_crowded=lambda: False,
        is_operators=lambda path: path == "/drain",
        **{"api_key": None, **keys},
    )
    shown = {} if key is None else {"authorization": f"Bearer {key}"}

    async def ask():
        transport = httpx.ASGITransport(gate, client=(client, 5))
        async with httpx.AsyncClient(transport=transport, base_url="http://own") as http:
            return (await http.post(path, headers={**shown, **dict(headers)})).status_code

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("keys", "shown", "status"),
    [
        ({"api_key": "own"}, "own", 200),
        ({"api_key": "own"}, None, 401),
        ({"api_key": "own"}, "other", 401),
        ({"api_key": "own", "tenants": [TENANT]}, "sk-a", 403),
        ({"tenants": [TENANT]}, "sk-a", 403),
        ({"tenants": [TENANT]}, None, 403),
        ({"api_key": "own", "operator_key": "root"}, "own", 403),
        ({"api_key": "own", "operator_key": "root"}, "root", 200),
        ({"operator_key": "root"}, None, 401),
        ({"operator_key": "root"}, "root", 200),
    ],
)
def test_only_the_operators_key_opens_what_is_the_operators(keys, shown, status):
    assert post("/drain", key=shown, **keys) == status


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
    assert post("/chat", client="10.0.0.9") == 200
    assert post("/chat", client="10.0.0.9", operator_key="root") == 200
    assert post("/chat", client="10.0.0.9", key="sk-a", tenants=[TENANT], api_key="own") == 200
    assert post("/chat", key="root", api_key="own", operator_key="root") == 401
