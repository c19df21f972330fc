"""`SelectionService` over the events of real sockets: it counts what can be resumed, and what was sent."""

import asyncio
import json
from pathlib import Path
from random import Random

import msgspec
import pytest

from octavo.errors import InputError
from octavo.events import PublishedPlan
from octavo.http import ApiError
from octavo.router import FleetIndex, SelectionService
from octavo.specs import CacheDType, FullAttentionSpec, MambaSpec
from rigs.publishing_engine import BLOCK_SIZE, HASHES, SHORTEST, TOKENS, Publishing, in_store, stored

MANY = 100_000
"""Blocks of which a dump has several parts."""
ASKED = {"model_name": "m", "token_ids": [*TOKENS, *[5] * 8]}


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


async def until(service, holds):
    """Until it holds of all ranks. Each look lets the listeners go on."""
    while not all(holds(rank) for worker in service.workers() for rank in worker["ranks"]):  # noqa: ASYNC110 - sockets are read meanwhile
        await asyncio.sleep(0)


def num_threads():
    """ZMQ's own among them."""
    return len(list(Path("/proc/self/task").iterdir()))


async def told(service, *workers):
    for worker in workers:
        await service.upsert_worker(worker)
    await until(service, lambda rank: rank["num_blocks"] > 0)


def by_worker(answer):
    return {row["worker_id"]: row for row in answer["workers"]}


def serving(work):
    """Runs a test's work in a loop with a service of its own."""

    async def run():
        clock = Clock()
        async with SelectionService(random=Random(0), clock=clock) as service:
            await work(service, clock)

    asyncio.run(run())


def test_tokens_that_can_be_resumed_count_and_no_others(long, short):
    async def work(service, _):
        await told(service, long.worker(1), short.worker(2))
        rows = by_worker(await service.overlap_scores(ASKED))
        levels = ("gpu", "cpu", "disk", "longest_matched", "device_blocks")
        assert [rows[1][level] for level in levels] == [16, 16, 16, 16, 1]
        assert [rows[2][level] for level in levels] == [256, 512, 512, 512, 16]
        assert rows[1]["is_at_most"]
        chosen = await service.select({**ASKED, "selection_id": "r"})
        assert (chosen["worker_id"], chosen["dp_rank"], chosen["endpoint"]) == (2, 0, "http://10.0.0.2")
        assert chosen["overlap"] == {"longest_matched": 512, "gpu": 256, "cpu": 512, "disk": 512, "dp": {"0": 256}}
        assert (chosen["effective_prefill_tokens"], chosen["block_size"]) == (520, BLOCK_SIZE)
        assert service.loads()[0]["active_requests"] == 0

    serving(work)


def test_hashes_ask_the_same_as_tokens(long, short):
    async def work(service, _):
        await told(service, long.worker(1), short.worker(2))
        signed = [one - (1 << 64) if one >> 63 else one for one in HASHES]
        answers = [
            await service.query(question)
            for question in (
                ASKED,
                {"model_name": "m", "block_hashes": HASHES},
                {"model_name": "m", "sequence_hashes": signed, "isl_tokens": len(TOKENS) + 8},
            )
        ]
        assert answers[0] == answers[1] == answers[2]
        assert answers[0]["scores"] == {"1": {"0": 16}, "2": {"0": 512}}
        assert answers[0]["frequencies"] == [2, *[1] * 31]
        assert answers[0]["instances"]["2"] == {
            "longest_matched": 512,
            "gpu": 256,
            "cpu": 512,
            "disk": 512,
            "dp": {"0": 256},
        }

    serving(work)


def test_what_was_sent_counts_until_it_is_freed(long, short):
    async def work(service, clock):
        await told(service, long.worker(1), short.worker(2))
        sent = await service.select_and_reserve({**ASKED, "selection_id": "a"})
        assert (sent["worker_id"], sent["isl_tokens"], sent["sequence_hashes"]) == (2, 1032, HASHES)
        assert {load["worker_id"]: load["active_prefill_tokens"] for load in service.loads()} == {1: 0, 2: 520}
        assert by_worker(await service.overlap_scores(ASKED))[2]["disk"] == 1024  # others follow it
        with pytest.raises(ApiError, match="'a' is reserved already"):
            await service.select_and_reserve({**ASKED, "selection_id": "a"})
        clock.now += 0.52
        await service.prefill_complete("a")
        load = {load["worker_id"]: load for load in service.loads()}[2]
        assert (load["active_requests"], load["active_prefill_tokens"]) == (1, 0)
        assert load["prefill_tokens_per_s"] < 2000
        await service.free_reservation("a")
        assert by_worker(await service.overlap_scores(ASKED))[2]["disk"] == 512
        with pytest.raises(ApiError, match="no reservation 'a'"):
            await service.free_reservation("a")

    serving(work)


def test_a_reservation_that_nobody_speaks_of_expires(short):
    async def work(service, clock):
        await told(service, short.worker(2))
        for name in ("writes", "silent"):
            await service.create_reservation({**ASKED, "selection_id": name, "worker_id": 2})
        clock.now += 200
        await service.add_output_block("writes", decay_fraction=0.5)
        clock.now += 200
        assert service.num_reservations == 1
        assert [load["active_requests"] for load in service.loads()] == [1]
        clock.now += 200
        with pytest.raises(ApiError, match="no reservation 'writes'"):
            await service.free_reservation("writes")

    serving(work)


def test_a_callers_own_choice_is_counted_as_it_says(long, short):
    async def work(service, _):
        await told(service, long.worker(1), short.worker(2))
        chosen = {**ASKED, "worker_id": 1, "effective_prefill_tokens": 100}
        booked = await service.create_reservation(chosen)
        assert [row["potential_prefill_tokens"] for row in await service.potential_loads(ASKED)] == [108, 520]
        await service.free_reservation(booked["selection_id"])
        with pytest.raises(ApiError, match="no rank 7 of a worker 1"):
            await service.create_reservation({**chosen, "dp_rank": 7})

    serving(work)


def test_among_equals_a_session_stays_where_it_was():
    async def work(service, _):
        for number in range(8):
            await service.upsert_worker({"worker_id": number, "model_name": "m"})
        asked = {"model_name": "m", "token_ids": [5] * 8}
        for session in ("one", "two"):
            chosen = set()
            for _ in range(8):
                sent = await service.select_and_reserve({**asked, "session_id": session})
                await service.free_reservation(sent["selection_id"])
                chosen.add(sent["worker_id"])
            assert len(chosen) == 1

    serving(work)


def test_only_workers_that_are_allowed_are_chosen(long, short):
    async def work(service, _):
        await told(service, long.worker(1), short.worker(2))
        assert (await service.select({**ASKED, "allowed_worker_ids": [1]}))["worker_id"] == 1
        with pytest.raises(ApiError, match="no worker that this request may use"):
            await service.select({**ASKED, "allowed_worker_ids": [3]})

    serving(work)


def test_models_and_groups_share_nothing(long, short):
    async def work(service, _):
        await told(service, long.worker(1), short.worker(2, routing_group="other"))
        assert set(by_worker(await service.overlap_scores(ASKED))) == {1}
        assert set(by_worker(await service.overlap_scores({**ASKED, "tenant_id": "other"}))) == {2}
        with pytest.raises(ApiError, match="no worker serves model 'n'"):
            await service.select({**ASKED, "model_name": "n"})

    serving(work)


def test_a_worker_that_changes_keeps_what_is_known_of_ranks_that_stay(long, short):
    async def work(service, _):
        await told(service, long.worker(1))
        await service.upsert_worker(long.worker(1, endpoint="http://elsewhere"))
        assert (await service.select(ASKED))["endpoint"] == "http://elsewhere"
        assert service.workers()[0]["ranks"][0]["num_blocks"] == 65
        await service.upsert_worker(long.worker(1, routing_group="other"))
        assert service.workers()[0]["ranks"][0]["num_blocks"] == 0
        await service.delete_worker(1)
        assert (service.workers(), service.ready()) == ([], False)
        with pytest.raises(ApiError, match="no worker 1"):
            await service.delete_worker(1)

    serving(work)


def test_ranks_have_events_of_their_own(long, short):
    async def work(service, _):
        await service.register(
            {
                "instance_id": "i",
                "model_name": "m",
                "endpoint": long.events,
                "replay_endpoint": long.replay,
                "dp_rank": 0,
                "block_size": 16,
            }
        )
        await service.register(
            {
                "instance_id": "i",
                "model_name": "m",
                "endpoint": short.events,
                "replay_endpoint": short.replay,
                "dp_rank": 1,
            }
        )
        await until(service, lambda rank: rank["num_blocks"] > 0)
        assert (await service.query(ASKED))["instances"]["i"]["dp"] == {"0": 16, "1": 256}
        assert (await service.select(ASKED))["dp_rank"] == 1
        with pytest.raises(ApiError, match="rank 1 of 'i' is registered already"):
            await service.register({"instance_id": "i", "model_name": "m", "endpoint": short.events, "dp_rank": 1})
        await service.unregister({"instance_id": "i", "dp_rank": 1})
        assert [rank["dp_rank"] for rank in service.workers()[0]["ranks"]] == [0]
        assert (await service.query(ASKED))["scores"] == {"i": {"0": 16}}
        await service.unregister({"instance_id": "i"})
        assert not service.ready()

    serving(work)


def test_what_is_in_a_shared_store_counts_for_all_who_use_it_at_the_price_of_its_load(running):
    told_it, uses_it, second_rank, others = (running(Publishing(one)) for one in (in_store(HASHES), *[SHORTEST] * 3))
    store, fast, slow = {"redis": "pool"}, {"redis": [0.01, 1e-5]}, {"redis": [0.01, 1e-3]}
    asked = {**ASKED, "allowed_worker_ids": [2, 3]}

    async def register(service, engine, instance_id, **told):
        endpoints = {"endpoint": engine.events, "replay_endpoint": engine.replay}
        await service.register({"instance_id": instance_id, "model_name": "m", **endpoints, **told})

    async def work(service, _):
        await register(service, told_it, 1, stores=store)
        await register(service, uses_it, 2, stores=store, load_speeds=fast)
        await register(service, others, 3, stores={"redis": "other"}, load_speeds=fast)
        await until(service, lambda rank: rank["num_blocks"] > 0)
        assert {name: row["disk"] for name, row in by_worker(await service.overlap_scores(ASKED)).items()} == {
            1: 768,
            2: 768,
            3: 16,
        }
        chosen = await service.select(asked)
        assert (chosen["worker_id"], chosen["effective_prefill_tokens"]) == (2, 264)
        assert chosen["expected_s"] == pytest.approx(0.01 + 752e-5 + 264 / 2000)

        await register(service, second_rank, 2, dp_rank=1)
        await until(service, lambda rank: rank["num_blocks"] > 0)
        rows = (await service.overlap_scores(ASKED))["workers"]
        assert [row["disk"] for row in rows if row["worker_id"] == 2] == [768, 768], "ranks need not repeat it"
        await service.unregister({"instance_id": 2, "dp_rank": 1})

        await service.upsert_worker(uses_it.worker(2, stores=store, load_speeds=slow))
        assert [rank["event_batches"] for rank in service.workers()[1]["ranks"]] == [1], "it is not asked anew"
        loads = {row["worker_id"]: row for row in await service.potential_loads(asked)}
        assert loads[2]["potential_prefill_tokens"] == loads[3]["potential_prefill_tokens"] == 1016
        await service.create_reservation({**ASKED, "worker_id": 2})
        assert {one["worker_id"]: one["active_prefill_tokens"] for one in service.loads()} == {1: 0, 2: 1016, 3: 0}

    serving(work)


def test_an_engine_that_tells_its_plan_is_known_for_sure(running, short):
    specs = [FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=8)]
    specs.append(MambaSpec(block_size=16, shapes=((4,),), dtypes=(CacheDType.FLOAT32,)))
    plan = PublishedPlan.of_specs(specs, hash_block_size=16, clears_all_media=True, heartbeat_s=100.0)

    async def work(service, _):
        await told(service, short.worker(2))
        for _ in range(2):
            short.publish([], plan=plan)
        await until(service, lambda rank: rank["event_batches"] == 3)
        assert not by_worker(await service.overlap_scores(ASKED))[2]["is_at_most"]
        assert by_worker(await service.overlap_scores(ASKED))[2]["disk"] == 512

    serving(work)


def test_a_dump_tells_another_index_all(short):
    async def work(service, _):
        await told(service, short.worker(2))
        (rank,) = service.dump()["m:default"]
        assert (rank["worker_id"], rank["dp_rank"], rank["block_size"]) == (2, 0, 16)
        specs = [FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=8)]
        specs.append(MambaSpec(block_size=16, shapes=((4,),), dtypes=(CacheDType.FLOAT32,)))
        other = FleetIndex(specs, hash_block_size=16)
        other.add_engine("copy")
        other.apply("copy", rank["events"])
        assert other.resumes(HASHES, 1032) == {"copy": 512}
        assert other.as_events("copy") == rank["events"]
        assert json.loads(b"".join(service.dump_as_json())) == json.loads(msgspec.json.encode(service.dump()))

    serving(work)


def test_a_dump_of_many_blocks_comes_in_parts_between_which_anything_may_happen(short):
    many = list(range(1, 1 + MANY))

    async def work(service, _):
        assert json.loads(b"".join(service.dump_as_json())) == {}
        await told(service, short.worker(2))
        short.publish([stored(many, 0, "full_attention")])
        await until(service, lambda rank: rank["num_blocks"] > MANY)
        pieces = []
        for piece in service.dump_as_json():
            pieces.append(piece)
            if len(pieces) == 5:
                short.publish([stored([hash_ + MANY for hash_ in many], 0, "full_attention")])
                await until(service, lambda rank: rank["num_blocks"] > 2 * MANY)
            elif len(pieces) == 10:
                await service.delete_worker(2)
        assert max(map(len, pieces)) < MANY
        (rank,) = json.loads(b"".join(pieces))["m:default"]
        assert 0 < sum(len(event["block_hashes"]) for event in rank["events"]) < MANY

    serving(work)


def test_ranks_that_are_followed_have_no_threads_of_their_own(short):
    """libzmq ends the process where it can start no thread, and a fleet may have a thousand ranks."""

    async def work(service, _):
        await told(service, short.worker(0))
        before = num_threads()
        await told(service, *(short.worker(number) for number in range(1, 10)))
        assert num_threads() == before

    serving(work)


@pytest.mark.parametrize(
    ("worker", "complaint"),
    [
        ({}, "worker_id is missing"),
        ({"worker_id": 1, "block_size": "many"}, "block_size must be"),
        ({"worker_id": 1, "kv_events_endpoints": {"0": "nowhere"}}, "'nowhere' is no endpoint"),
        ({"worker_id": 1, "data_parallel_size": 1, "kv_events_endpoints": {3: "tcp://a:1"}}, "an endpoint for rank 3"),
        ({"worker_id": 1, "data_parallel_size": 2, "replay_endpoint": "tcp://a:1"}, "write replay_endpoints"),
        ({"worker_id": 1, "hash_algorithm": "md5"}, "md5"),
        ({"worker_id": 1, "stores": "pool"}, "stores must be names by medium"),
        ({"worker_id": 1, "stores": {"redis": ""}}, "stores.redis must be a name, not ''"),
        ({"worker_id": 1, "stores": {str(one): "a" for one in range(65)}}, "stores must be names by medium, 64 at"),
        ({"worker_id": 1, "load_speeds": {"redis": [-1, 0]}}, "load_speeds.redis must be .seconds, seconds for each"),
        ({"worker_id": 1, "load_speeds": {"redis": 0.5}}, "load_speeds.redis must be .seconds, seconds for each"),
    ],
)
def test_a_worker_that_cannot_be_read_changes_nothing(worker, complaint):
    async def work(service, _):
        with pytest.raises(InputError, match=complaint):
            await service.upsert_worker(worker)
        assert service.workers() == []

    serving(work)


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        ({}, "token_ids is missing"),
        ({"token_ids": "text"}, "token_ids must be"),
        ({"token_ids": [1 << 40]}, "token"),
        ({"token_ids": [-1]}, "token"),
        ({"sequence_hashes": [1], "isl_tokens": 1 << 40}, "isl_tokens"),
    ],
)
def test_a_question_that_cannot_be_read_is_refused(short, question, complaint):
    async def work(service, _):
        await told(service, short.worker(2))
        with pytest.raises(InputError, match=complaint):
            await service.select({"model_name": "m", **question})

    serving(work)


def test_what_is_told_later_is_taken_in(short):
    async def work(service, _):
        await told(service, short.worker(2))
        before = service.num_blocks
        short.publish([stored([HASHES[40]], 0, "full_attention")])
        await until(service, lambda rank: rank["event_batches"] == 2)
        assert service.num_blocks == before + 1

    serving(work)


def test_what_is_missing_is_told_in_the_words_of_a_registration():
    async def work(service, _):
        await service.upsert_worker({"worker_id": 1, "model_name": "m", "endpoint": "http://10.0.0.1"})
        await until(service, lambda rank: rank["problem"])
        problem = service.workers()[0]["ranks"][0]["problem"]
        assert "publishes no events" in problem
        assert "as `kv_events_endpoints` of /workers" in problem
        assert "URL," not in problem

    serving(work)
