"""How tenants share the places for open requests, which are nobody's alone, and take turns in the engine."""

import threading
from contextlib import ExitStack, suppress

import pytest

from octavo.http import Admission, ApiError, Tenant
from rigs.running_server import ENDLESS, LONG_CONTEXT, serving

TENANTS = [Tenant(key=f"sk-{name}", tenant=name) for name in "ab"]


def fill(admission, tenant):
    """The tickets of requests that are opened until one is refused."""
    tickets = []
    with suppress(ApiError):
        while True:
            tickets.append(admission.enter(tenant))
    return tickets


def test_each_further_tenant_finds_room():
    admission = Admission(most_requests=60, most_bytes=0, is_shared=True)
    tickets = [fill(admission, tenant) for tenant in "abc"]
    assert [len(of_tenant) for of_tenant in tickets] == [30, 15, 7]
    for ticket in tickets[0]:
        ticket.__exit__(None, None, None)
    assert len(fill(admission, "b")) == 11  # b has 26 now, and 27 are left


def test_without_tenants_all_places_are_anybodys():
    assert len(fill(Admission(most_requests=60, most_bytes=0), None)) == 60


def test_a_list_of_prompts_takes_its_places_or_none():
    admission = Admission(most_requests=10, most_bytes=0, is_shared=True)
    with admission.enter("a") as ticket:
        ticket.add_prompts(3)
        with pytest.raises(ApiError, match="your key has 4 open requests"):
            ticket.add_prompts(2)
        assert len(fill(admission, "b")) == 3
        ticket.add_prompts(0)
    assert len(fill(admission, "a")) == 3


@pytest.mark.parametrize("places", [1, 2, 3])
def test_few_places_are_of_use(places):
    assert len(fill(Admission(most_requests=places, most_bytes=0, is_shared=True), "a")) == 1


def test_one_list_of_prompts_leaves_room_for_other_tenants(model_folder):
    with (
        serving(model_folder, tenants=TENANTS, max_waiting=8, max_num_seqs=2) as server,
        server.client() as client,
    ):
        statuses = []

        def ask(tenant, num_prompts):
            body = {"prompt": ["hello"] * num_prompts, "max_tokens": 1}
            answer = client.post("/v1/completions", json=body, headers={"authorization": f"Bearer sk-{tenant}"})
            statuses.append((tenant, answer.status_code))

        def start(tenant, num_prompts):
            before = len(server.server.service.live)
            asking = threading.Thread(target=ask, args=(tenant, num_prompts))
            asking.start()
            while asking.is_alive() and len(server.server.service.live) == before:
                client.get("/health")
            return asking

        with server.held_engine():
            ask("a", 8)
            asking = [start("a", 5)]
            ask("a", 1)
            asking += [start("b", 1), start("b", 1)]
        for one in asking:
            one.join()
    assert statuses[:2] == [("a", 400), ("a", 429)]
    assert sorted(statuses[2:]) == [("a", 200), ("b", 200), ("b", 200)]


def test_one_list_of_prompts_does_not_hold_up_other_tenants(model_folder):
    longs = {"max_model_len": LONG_CONTEXT, "device_memory_bytes": 32 << 20, "max_num_seqs": 1}
    with serving(model_folder, tenants=TENANTS, **longs) as server, server.client() as client, ExitStack() as asking:

        def ask(tenant, num_prompts, num_live):
            keys = {"authorization": f"Bearer sk-{tenant}"}
            body = {"prompt": ["hello"] * num_prompts, **ENDLESS}
            asking.enter_context(client.stream("POST", "/v1/completions", json=body, headers=keys))
            assert len(server.server.service.live) == num_live

        ask("a", 1, 1)
        ask("a", 3, 4)
        ask("b", 2, 6)

        def find_next(engine):
            scheduler = engine.scheduler
            return scheduler._turns.first(5, scheduler.waiting, scheduler.running)

        assert [choice.request.tenant for choice in server.ask(find_next)] == ["b", "a", "b", "a", "a"]
