"""A real Ray Serve: calls go to the replica that can resume them, and leave one that dies."""

import time
from contextlib import suppress

import pytest

pytest.importorskip("ray", reason="needs octavo[ray]: make test-fleet")

import ray
from ray import serve
from ray.serve.config import RequestRouterConfig

from rigs.publishing_engine import TOKENS
from rigs.ray_replicas import ROUTERS, STORED_TOKENS, Replica
from rigs.running_ray import PATIENCE_S, running_ray

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.timeout(600),  # Ray starts five processes
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def ray_machine():
    with running_ray(proxy_location="Disabled"):  # a proxy that is not up in time would end the test
        yield


@pytest.fixture
def handle(ray_machine, tmp_path):
    deployment = serve.deployment(
        Replica,
        num_replicas=2,
        ray_actor_options={"num_cpus": 0.2},
        request_router_config=RequestRouterConfig(
            request_router_class="rigs.ray_replicas.SeenRouter", request_routing_stats_period_s=0.5
        ),
    )
    yield serve.run(deployment.bind(str(tmp_path)), name="app", route_prefix=None)
    serve.delete("app")


def ask(handle, tokens=TOKENS):
    return handle.remote(token_ids=tokens).result(timeout_s=PATIENCE_S)


def wait_until_known(holds):
    """Until something holds of the ranks that the router knows."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds({worker["worker_id"]: worker["ranks"][0] for worker in ROUTERS[-1].known()}):
        assert time.monotonic() < deadline, ROUTERS[-1].known()
        time.sleep(0.05)


def test_calls_go_where_their_prompt_can_be_resumed_and_leave_a_replica_that_dies(handle):
    ask(handle, [])  # the handle has a router now
    wait_until_known(lambda ranks: sorted(rank["event_batches"] for rank in ranks.values()) == [1, 1])
    answers = [ask(handle) for _ in range(20)]
    assert {role for _, role in answers} == {"with_state"}, "the other one has more attention, and no state"
    assert {role for _, role in [ask(handle, []) for _ in range(40)]} == {"with_state", "without_state"}
    assert {role for _, role in [ask(handle, STORED_TOKENS) for _ in range(20)]} == {"with_state"}, "it loads sooner"

    assert ask(handle, "no tokens")[1] in {"with_state", "without_state"}, "it goes anywhere"

    dead = answers[0][0]
    with suppress(ray.exceptions.RayError):
        handle.die.remote(dead, token_ids=TOKENS).result(timeout_s=PATIENCE_S)
    assert dead not in {name for name, _ in [ask(handle) for _ in range(5)]}
    wait_until_known(lambda ranks: dead not in ranks and len(ranks) == 2)
    assert dead not in {name for name, _ in [ask(handle) for _ in range(5)]}
