"""A store that engines share: what one engine told of it, every engine that names the same store can load."""

import time
from random import Random

import httpx
import pytest
from hypothesis import given, strategies as st

from octavo.events import BlockRemoved, BlockStored, GroupView
from octavo.router import EngineAddress, FleetIndex, Placement, Prompt
from octavo.router.facts import read_models
from octavo.stores import StoreDownError
from octavo.testing import strategies
from rigs.objects_suite import PATIENT
from rigs.running_router import RoutedEngine, RunningRouter, resumed_tokens
from rigs.running_server import MODEL

HASHES = list(range(100, 124))
NAMES = ["a", "b", "c", "d"]
PLACES = [("GPU", None), ("STORAGE", "disk"), ("redis", "redis"), ("STORAGE", "objects")]


def event(kind, hashes, group, place):
    medium, ownership = place
    if kind is BlockRemoved:
        return BlockRemoved(block_hashes=hashes, medium=medium, group_idx=group, ownership=ownership)
    return BlockStored(
        block_hashes=hashes,
        parent_block_hash=None,
        token_ids=[],
        block_size=0 if group is None else kind[1],
        lora_id=None,
        medium=medium,
        lora_name=None,
        group_idx=group,
        ownership=ownership,
    )


@st.composite
def fleets(draw):
    """An index, and the names of the stores that each engine can use."""
    layers = draw(strategies.layer_sets(block_sizes=st.sampled_from([4, 8, 12])))
    specs = list(dict.fromkeys(layers.values()))
    index = FleetIndex(specs, hash_block_size=4)
    stores = {}
    for name in NAMES:
        media = draw(st.dictionaries(st.sampled_from(["redis", "objects"]), st.sampled_from(["one", "two"])))
        stores[name] = media
        index.add_engine(name, stores=media)
    for _ in range(draw(st.integers(0, 25))):
        group = draw(st.integers(0, len(specs) - 1))
        size = specs[group].block_size
        kind = draw(st.sampled_from([("stored", size), ("stored", size), ("stored", size), BlockRemoved]))
        first = draw(st.sampled_from([0, 0, 0, draw(st.integers(0, len(HASHES)))]))
        hashes = HASHES[size // 4 - 1 :: size // 4][first:][: draw(st.integers(1, 24))]
        name, place = draw(st.sampled_from(NAMES)), draw(st.sampled_from(PLACES))
        index.apply(name, [event(kind, hashes, group, place)])
    off = {name: draw(st.sets(st.sampled_from(["redis", "objects"]), max_size=1)) for name in NAMES}
    for name, media in off.items():
        index.note_stores_off(name, media)
    if draw(st.booleans()):  # as if all plans had grown, by nothing here
        index, former = FleetIndex(specs, hash_block_size=4), index
        for name in NAMES:
            former.move_engine(name, index)
    for name in draw(st.sets(st.sampled_from(NAMES), max_size=2)):
        change = draw(st.sampled_from([index.restart, index.resync, index.silence]))
        change(name)
        if change == index.restart:
            off[name] = set()
    used = {name: {m: store for m, store in stores[name].items() if m not in off[name]} for name in NAMES}
    return specs, index, used


@given(fleet=fleets(), num_tokens=st.integers(0, 97))
def test_each_engine_has_what_any_of_them_told_of_its_stores(fleet, num_tokens):
    """Beside it, a view of each engine that is told of the others' stores too."""
    specs, index, stores = fleet
    found = index.read(HASHES, num_tokens)
    for name in NAMES:
        view = GroupView(specs, hash_block_size=4)
        view.apply(index.as_events(name))
        for other in NAMES:
            told = index.as_events(other)
            view.apply(
                one
                for one in told
                if one.ownership and stores[other].get(one.ownership, "") == stores[name].get(one.ownership)
            )
        resumes = view.longest_resume(HASHES, num_tokens).num_tokens
        here = view.longest_resume(HASHES, num_tokens, media=["GPU"]).num_tokens
        if name in index._silent:
            resumes = here = 0
        assert found.resumes.get(name, 0) == resumes
        points = found.loads.get(name)
        assert (points is None) == (here == resumes)
        assert points is None or (points[0], points[-1]) == (here, resumes)


def test_a_busy_engine_loses_to_one_that_can_load_what_it_stored():
    placement = Placement(Random(0))
    for name in NAMES[:2]:
        placement.add(name)
    busy = Prompt(num_tokens=50_000, resumes={})
    placement.send(placement.choose(busy, ["a"], 0.0), busy, now=0.0)
    asked = Prompt(num_tokens=4100, resumes={"a": 4096, "b": 4096}, loads={"b": (0, 0, 0, 4096)})
    choice = placement.choose(asked, ["a", "b"], 0.0)
    assert (choice.engine, choice.resumed_tokens) == ("b", 4096)


def test_engines_that_tell_no_store_get_its_name_from_whoever_names_them():
    address = EngineAddress.parse("http://10.0.0.7:8000,store=pool")
    answer = httpx.Response(200, json={"data": [{"id": "m"}]}, request=httpx.Request("GET", address.url))
    assert read_models(answer, address).stores == dict.fromkeys(["mooncake", "objects", "redis"], "pool")
    assert not read_models(answer, EngineAddress.parse("http://10.0.0.7:8000")).stores


@pytest.fixture
def engines(model, running, tmp_path):
    offload = {"memory": "4MiB", "shared": {"url": (tmp_path / "store").as_uri(), **PATIENT}}
    return [running(RoutedEngine(model, offload=offload)) for _ in range(2)]


def stores_of(engine):
    with engine.client() as client:
        return client.get("/engine").json()["stores"]


def tell_all(engine):
    """Stores everything, and says so."""
    assert engine._offload.flush(60, time.monotonic)
    engine._publish_events()


def test_what_one_engine_stored_another_one_is_expected_to_resume(engines, running, tmp_path):
    pytest.importorskip("obstore")
    told = [stores_of(engine) for engine in engines]
    assert told[0] == told[1]
    assert list(told[0]) == ["objects"]
    router = running(RunningRouter([engine.url for engine in engines]))
    router.wait_until_known(2)
    body = {"model": MODEL, "prompt": list(range(5, 205)), "max_tokens": 1, "temperature": 0}
    with router.client() as client:
        first = client.post("/v1/completions", json=body).headers["x-octavo-engine"]
        for engine in engines:
            engine.ask(tell_all)
        router.wait_until_told(engines)
        client.post(f"/fleet/{first}/drain").raise_for_status()
        answer = client.post("/v1/completions", json=body)
        decision = router.look()["decisions"][-1]
    resumed = resumed_tokens(answer)
    assert answer.headers["x-octavo-engine"] != first
    assert decision["choice"]["resumed_tokens"] == int(answer.headers["x-octavo-expected"]) == resumed > 0


def test_what_a_store_has_is_expected_after_a_reset_that_spares_it(engines, running):
    pytest.importorskip("obstore")
    engine = engines[0]
    router = running(RunningRouter([engine.url]))
    router.wait_until_known(1)
    body = {"model": MODEL, "prompt": list(range(5, 205)), "max_tokens": 1, "temperature": 0}
    with router.client() as client, engine.client() as of_engine:
        client.post("/v1/completions", json=body)
        engine.ask(tell_all)
        of_engine.post("/reset_prefix_cache").raise_for_status()
        engine.ask(tell_all)
        router.wait_until_told([engine])
        answer = client.post("/v1/completions", json=body)
    resumed = resumed_tokens(answer)
    assert int(answer.headers["x-octavo-expected"]) == resumed > 0


def turn_off(engine):
    """Its store cannot be reached, until `turn_on`."""
    tier = engine._offload._manager._below.lowers[-1]._tier

    async def probe():
        raise StoreDownError("it is away")

    tier._client.probe = probe
    tier._health.degrade("it is away")


def turn_on(engine):
    del engine._offload._manager._below.lowers[-1]._tier._client.probe


def wait_until_said(engine, stores_off):
    while engine.ask(lambda asked: asked._event_feed._plan.stores_off) != stores_off:
        pass
    engine.ask(tell_all)


def expected_and_resumed(router, body, engine, engines):
    """Of a prompt that goes to this engine."""
    router.wait_until_told(engines)
    with router.client() as client:
        for each in engines:
            client.request("DELETE" if each is engine else "POST", f"/fleet/{each.name}/drain").raise_for_status()
        answer = client.post("/v1/completions", json=body)
    resumed = resumed_tokens(answer)
    return int(answer.headers["x-octavo-expected"]), resumed


def test_what_others_stored_counts_only_while_the_engines_own_store_is_on(engines, running):
    pytest.importorskip("obstore")
    router = running(RunningRouter([engine.url for engine in engines]))
    router.wait_until_known(2)
    one, other = engines
    prompts = [{"model": MODEL, "prompt": list(range(i, i + 200)), "max_tokens": 1, "temperature": 0} for i in range(3)]
    with router.client() as client:
        client.post(f"/fleet/{other.name}/drain").raise_for_status()
        for body in prompts:
            client.post("/v1/completions", json=body).raise_for_status()
    one.ask(tell_all)
    other.ask(turn_off)
    wait_until_said(other, ["objects"])
    late = running(RunningRouter([engine.url for engine in engines]))
    late.wait_until_known(2)
    for asked, body in zip((router, late), prompts, strict=False):
        assert expected_and_resumed(asked, body, other, engines) == (0, 0)
    other.ask(turn_on)
    wait_until_said(other, [])
    expected, resumed = expected_and_resumed(late, prompts[2], other, engines)
    assert expected == resumed > 0
