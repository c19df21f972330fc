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
