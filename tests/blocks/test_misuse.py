"""What an engine must not do is refused with a clear error, and changes nothing."""

import pytest

from octavo.blocks import KVCacheManager
from octavo.errors import InputError
from octavo.planning import plan_kv_cache
from octavo.specs import FullAttentionSpec, RequestLimits


@pytest.fixture
def manager():
    layers = {"layers.0": FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=8)}
    return KVCacheManager(plan_kv_cache(layers, memory_bytes=1 << 16, limits=RequestLimits(max_model_len=256)))


def test_a_step_that_computes_nothing(manager):
    request = manager.begin_request("r", range(40))
    assert manager.allocate(request, 40)
    manager.commit(request, 40)
    for num_tokens in (0, 39, 40):
        with pytest.raises(
            InputError, match=f"has computed 40 tokens; a step that ends at {num_tokens} computes nothing"
        ):
            manager.allocate(request, num_tokens)
    assert request.num_scheduled_tokens == 40


@pytest.mark.parametrize("bad", [-1, 2**31, "a"])
def test_tokens_that_are_none(manager, bad):
    request = manager.begin_request("r", range(40))
    with pytest.raises(InputError, match="tokens must be whole numbers"):
        manager.append_tokens(request, [5, bad])
    assert request.num_tokens == 40


def test_a_commit_of_what_was_never_allocated(manager):
    request = manager.begin_request("r", range(40))
    assert manager.allocate(request, 20)
    with pytest.raises(InputError, match="commits 40 tokens, but has room allocated for 20"):
        manager.commit(request, 40)


def test_requests_that_ended_and_those_of_others(manager):
    ended = manager.begin_request("r", range(40))
    assert manager.allocate(ended, 20)
    manager.commit(ended, 20)
    manager.free(ended)
    live = manager.begin_request("r", range(40))  # the name is free again
    assert manager.allocate(live, 40)
    misuses = [
        lambda: manager.free(ended),
        lambda: manager.preempt(ended),
        lambda: manager.allocate(ended, 40),
        lambda: manager.fork(ended, "twin"),
    ]
    for misuse in misuses:
        with pytest.raises(InputError, match="'r' is not one of this manager's"):
            misuse()
    assert manager.requests == {"r": live}
    manager.check_invariants()


def test_a_decode_step_without_a_token_for_each(manager):
    request = manager.begin_request("r", range(40))
    assert manager.allocate(request, 40)
    with pytest.raises(InputError, match="1 requests and 2 tokens"):
        manager.decode_step([request], [1, 2])
    assert request.num_tokens == 40
