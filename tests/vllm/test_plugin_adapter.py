"""The adapter as vLLM's scheduler and worker call it, without an engine."""

import gc
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from octavo.chunks import Departures, GroupOffloadConfig, HintKind, HintOutcome, PromisedPoint
from octavo.errors import OffloadError, TransferError
from octavo.host import SlotPlan
from octavo.ids import BlockHash
from octavo.offload import LoadRule, OffloadConfig, OffloadingManager, OffloadLimits, Outlook
from octavo.policies import LRUPolicy
from octavo.specs import FullAttentionSpec, SlidingWindowSpec
from octavo.tiers import Tier
from octavo.transfer import (
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    CanonicalKVCacheTensor,
    Page,
    attention_page,
    replicated_page,
    share_page,
)
from octavo.vllm_plugin.groups import groups_of_engine
from octavo.vllm_plugin.promised import PromisedChunks
from octavo.vllm_plugin.ranks import DeviceGroup, DeviceReport, GroupReport, GroupRule, Loaded, RankReport
from octavo.vllm_plugin.shared_arena import RankArena, SharedArena
from octavo.why import Cause, MissLog, find_report, tell_misses
from rigs.faulty_tier import FaultyTier, TierFault
from rigs.naive_tier import NaiveTier
from rigs.slow_to_answer import SlowToAnswer

with warnings.catch_warnings():  # torch's, while vLLM is imported
    warnings.simplefilter("ignore")
    pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")
    from vllm.distributed.kv_events import AllBlocksCleared
    from vllm.v1.kv_offload.base import (
        GPULoadStoreSpec,
        LookupResult,
        OffloadingManager as VllmManager,
        ReqContext,
        ScheduleEndContext,
        get_offload_block_hash,
        make_offload_key,
    )
    from vllm.v1.request import RequestStatus

    from octavo.vllm_plugin.adapter.manager import OctavoManager
    from octavo.vllm_plugin.adapter.request import state_of
    from octavo.vllm_plugin.adapter.worker import OctavoWorker

pytestmark = [pytest.mark.vllm, pytest.mark.every_vllm, pytest.mark.filterwarnings("ignore")]

PAGE, TOKENS = 4096, 16
STEP = ScheduleEndContext((), ())
TIMEOUT_S = 5.0


class Listening(LRUPolicy):
    """Notes what it is told of points and uses."""

    def __init__(self, groups: Any, num_slots: int) -> None:
        super().__init__(groups, num_slots)
        self.promised: list[tuple[int, bytes, int]] = []
        self.used: list[list[bytes]] = []
        self.weights: dict[bytes, float] = {}
        self.parents: dict[bytes, bytes | None] = {}

    def insert(self, chunks: Any) -> None:
        self.parents |= {chunk.key: chunk.parent for chunk in chunks}
        super().insert(chunks)

    def promise(self, point: PromisedPoint) -> None:
        self.promised.append(tuple(point))

    def touch(self, keys: Any) -> None:
        self.used.append(list(keys))
        super().touch(keys)

    def weigh(self, block_hash: BlockHash, weight: float) -> bool:
        self.weights[block_hash] = weight
        return True


class Engine:
    """Scheduler's side and ranks' sides over one shared arena, and a clock that is set by hand."""

    def __init__(
        self,
        name: str,
        *,
        num_slots: int = 8,
        num_ranks: int = 1,
        reports_failed_loads: bool = False,
        tier_bytes: int = 1 << 20,
        tier: Tier | None = None,
        stores: bool = True,
        loads: LoadRule = LoadRule.MEASURED,
        page: Page | None = None,
        device: DeviceReport | None = None,
        idle: int | None = None,
        is_draft: bool = False,
        takes_adapters: bool = False,
    ) -> None:
        """`page`: what the ranks share, if that is known; each has PAGE bytes of it. `idle`: a rank that has no layer
        of the group. `is_draft`: whether the group holds drafts."""
        self.now = 100.0
        self.loaded: list[Loaded] = []
        """What was loaded into the engine."""
        self.told: dict[str, SimpleNamespace] = {}
        """vLLM's own requests, by name."""
        whole_bytes = 0 if page is None else share_page(page, 0, num_ranks).whole_bytes
        group = GroupReport(
            group_id=0,
            rule=GroupRule.WHOLE,
            reach_tokens=0,
            tokens_per_block=TOKENS,
            page_bytes=PAGE,
            whole_bytes=whole_bytes,
            whole=str(page or ""),
            is_draft=is_draft,
        )
        reports = [
            RankReport(
                rank=rank,
                process=1,
                groups=(replace(group, page_bytes=0) if rank == idle else group,),
                identity={},
                models=("m",),
                hash_algorithm="sha256",
                started_ns=1,
                stores=stores,
                device=device,
                takes_adapters=takes_adapters,
            )
            for rank in range(num_ranks)
        ]
        self.plan = SlotPlan(num_slots=num_slots, slot_bytes=whole_bytes or PAGE * num_ranks)
        self.groups = groups_of_engine(reports, 1)
        self.shared = SharedArena(name, self.plan, num_ranks)
        self.tier = tier or FaultyTier(NaiveTier(tier_bytes))
        departures = Departures()
        self.policy = Listening(self.groups, num_slots)
        self.manager = OctavoManager(
            OffloadingManager(
                self.shared.slots,
                self.groups,
                self.policy,
                [self.tier],
                limits=OffloadLimits(waiting_share=1.0),
                logs_changes=True,
                departures=departures,
                retain_share=1.0,
            ),
            self.shared,
            self.groups,
            reports[0],
            OffloadConfig(memory=1 << 20, load_timeout_s=TIMEOUT_S, loads=loads),
            tokens_per_hash=TOKENS,
            keeps_media=True,
            recorder=None,
            misses=MissLog(departures, self.groups),
            take_loaded=self.take_loaded,
            clock=lambda: self.now,
        )
        self.pages = [torch.zeros((16, PAGE), dtype=torch.int8) for _ in range(num_ranks)]
        self.ranks = [
            OctavoWorker(
                CanonicalKVCaches(
                    tensors=(CanonicalKVCacheTensor(tensor=self.pages[rank], page_size_bytes=PAGE),),
                    group_refs=((CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=PAGE),) if rank != idle else (),),
                ),
                [group],
                1,
                [page],
                open_arena=lambda slots, rank=rank: RankArena(name, slots, num_ranks, rank),
                reports_failed_loads=reports_failed_loads,
            )
            for rank in range(num_ranks)
        ]
        self._job_id = 0

    def take_loaded(self) -> list[Loaded]:
        taken, self.loaded = self.loaded, []
        return taken

    def request(self, name: str, count: int = 8) -> tuple[ReqContext, list[Any]]:
        context = ReqContext(req_id=name)
        keys = [make_offload_key(f"{name}-{i:027d}".encode(), 0) for i in range(count)]
        for i, key in enumerate(keys):
            context.set_offload_key_position(key, (i + 1) * TOKENS)
        return context, keys

    def announced(self, name: str, count: int = 8, *, hints: Any = None, **known: Any) -> tuple[ReqContext, list[Any]]:
        """A request that vLLM has told of, as its connector does. `known`: what vLLM's request has besides hashes."""
        context, keys = self.request(name, count)
        context.kv_transfer_params = {"octavo": hints}
        hashes = [get_offload_block_hash(key) for key in keys]
        request = SimpleNamespace(block_hashes=hashes, **known)
        self.told[name] = request
        self.manager.on_new_request(context)
        return context, keys

    def step(self) -> None:
        self.manager.on_schedule_end(STEP)

    def transfer(self, spec: Any, rows: list[int], *, is_load: bool) -> None:
        self._job_id += 1
        pages = GPULoadStoreSpec(rows, group_sizes=[len(rows)], block_indices=[0])
        for rank in self.ranks:
            if is_load:
                assert rank.submit_load(self._job_id, spec, pages)
            else:
                assert rank.submit_store(self._job_id, pages, spec)
            rank.wait({self._job_id})
            assert [(r.job_id, r.success) for r in rank.get_finished()] == [(self._job_id, True)]

    def store(self, context: ReqContext, keys: list[Any]) -> None:
        output = self.manager.prepare_store(keys, context)
        assert output is not None
        assert output.keys_to_store == keys
        self.transfer(output.store_spec, list(range(len(keys))), is_load=False)
        self.manager.complete_store(set(keys), context)

    def settle(self) -> None:
        while self.manager.has_pending_work():
            self.step()

    def close(self) -> None:
        for rank in self.ranks:
            rank.shutdown()
        self.manager.shutdown()


@pytest.fixture(params=[1, 2])
def engine(request, tmp_path):
    made = Engine(str(tmp_path / "arena"), num_ranks=request.param)
    yield made
    made.tier.fault = TierFault.NONE
    made.close()


def look(engine, context, keys):
    return [engine.manager.lookup(key, context) for key in keys]


def test_what_ranks_stored_comes_back(engine):
    context, keys = engine.request("a", 3)
    for rank, pages in enumerate(engine.pages):
        pages[:3] = torch.arange(3, dtype=torch.int8)[:, None] + 10 * (rank + 1)
    before = [pages.clone() for pages in engine.pages]
    engine.store(context, keys)
    engine.step()
    assert look(engine, context, keys) == [LookupResult.HIT] * 3
    spec = engine.manager.prepare_load(keys, context)
    engine.step()
    engine.transfer(spec, [4, 5, 6], is_load=True)
    engine.manager.complete_load(set(keys), context)
    for pages, was in zip(engine.pages, before, strict=True):
        assert torch.equal(pages[4:7], was[:3])
    engine.settle()
    engine.manager.manager.check_invariants()


@pytest.mark.parametrize("idle", [0, 1])
def test_a_rank_without_a_layer_of_the_group_has_nothing_to_copy(tmp_path, idle):
    """As with pipeline parallelism, where a group may have fewer layers than there are ranks."""
    engine = Engine(str(tmp_path / "arena"), num_ranks=2, idle=idle)
    pages = engine.pages[1 - idle]
    pages[:3] = torch.arange(3, dtype=torch.int8)[:, None] + 1
    context, keys = engine.request("a", 3)
    engine.store(context, keys)
    engine.settle()
    assert look(engine, context, keys) == [LookupResult.HIT] * 3
    engine.transfer(engine.manager.prepare_load(keys, context), [4, 5, 6], is_load=True)
    engine.manager.complete_load(set(keys), context)
    assert torch.equal(pages[4:7], pages[:3])
    engine.close()


def test_the_name_of_the_arena_goes_once_all_have_it(engine, tmp_path):
    assert (tmp_path / "arena").exists()
    engine.store(*engine.request("a", 1))
    assert not (tmp_path / "arena").exists()


def test_a_hit_stays_until_the_step_ends(engine):
    context, keys = engine.request("a")
    engine.store(context, keys)
    engine.settle()
    other, others = engine.request("b")
    engine.store(other, others)
    engine.settle()
    engine.step()
    assert look(engine, context, keys) == [LookupResult.HIT_PENDING] * 8  # given up for the others; on the tier
    assert look(engine, other, others) == [LookupResult.HIT] * 8
    engine.manager.prepare_load(others, other)
    engine.step()  # there is no room to promote
    assert look(engine, context, keys) == [LookupResult.HIT_PENDING] * 8
    engine.manager.complete_load(set(others), other)


@pytest.mark.parametrize(
    ("status", "num_computed", "holds"),
    [
        (RequestStatus.WAITING_FOR_REMOTE_KVS, 32, True),
        (RequestStatus.WAITING_FOR_REMOTE_KVS, 0, True),  # its load has failed, and vLLM has not asked it since
        (RequestStatus.WAITING, 32, True),
        (RequestStatus.PREEMPTED, 32, True),
        (RequestStatus.WAITING, 0, False),  # its load has failed
        (RequestStatus.RUNNING, 32, False),
        (RequestStatus.FINISHED_ABORTED, 32, False),
    ],
)
def test_a_load_waits_until_the_device_has_room_beside_what_is_loaded(tmp_path, status, num_computed, holds):
    device = DeviceReport(num_pages=5, groups=(DeviceGroup(tokens_per_page=TOKENS, most_pages=4),))
    engine = Engine(str(tmp_path / "arena"), device=device)
    waits = {"status": RequestStatus.WAITING, "num_tokens": 3 * TOKENS, "num_computed_tokens": 0}
    first, of_first = engine.announced("a", 2, **waits)
    second, of_second = engine.announced("b", 2, **waits)
    for context, keys in ((first, of_first), (second, of_second)):
        engine.store(context, keys)
    engine.step()
    assert look(engine, first, of_first) == [LookupResult.HIT] * 2
    engine.manager.prepare_load(of_first, first)
    assert look(engine, second, of_second) == [LookupResult.HIT_PENDING] * 2
    engine.told["a"].status, engine.told["a"].num_computed_tokens = status, num_computed
    engine.step()
    assert look(engine, second, of_second) == [LookupResult.HIT_PENDING if holds else LookupResult.HIT] * 2
    engine.manager.complete_load(set(of_first), first)
    engine.close()


def test_promoted_chunks_are_hits_from_disk(engine):
    context, keys = engine.request("a", 6)
    engine.store(context, keys)
    engine.settle()
    other, others = engine.request("b")
    engine.store(other, others)
    engine.settle()
    assert look(engine, context, keys) == [LookupResult.HIT_PENDING] * 6
    engine.step()
    engine.step()
    assert look(engine, context, keys) == [LookupResult.HIT] * 6
    if hasattr(VllmManager, "get_load_source"):  # vLLM asks for it from 0.32 on
        assert {engine.manager.get_load_source(key, context).value for key in keys} == {"disk"}


def test_waiting_has_a_deadline(engine):
    context, keys = engine.request("a", 6)
    engine.store(context, keys)
    engine.settle()
    other, others = engine.request("b")
    engine.store(other, others)
    engine.settle()
    engine.tier.fault = TierFault.HANGS
    assert look(engine, context, keys) == [LookupResult.HIT_PENDING] * 6
    engine.step()
    engine.now += TIMEOUT_S - 1
    assert look(engine, context, keys) == [LookupResult.HIT_PENDING] * 6
    engine.step()
    engine.now += 1
    assert look(engine, context, keys) == [LookupResult.MISS] * 6


def left_partly_below(engine):
    """A request whose chunks are on the tier, and in memory only as far as another left room."""
    context, keys = engine.request("a", 5)
    engine.store(context, keys)
    engine.settle()
    engine.store(*engine.request("b", 6))
    engine.settle()
    return context, keys


def test_who_loads_waits_for_nothing_more(engine):
    """Or what nobody loads would be held without end."""
    context, keys = left_partly_below(engine)
    engine.step()
    found = look(engine, context, keys)
    assert {LookupResult.HIT, LookupResult.HIT_PENDING} == set(found)
    hits = [key for key, result in zip(keys, found, strict=True) if result is LookupResult.HIT]
    engine.manager.prepare_load(hits, context)
    engine.step()
    engine.manager.complete_load(set(hits), context)
    engine.step()
    assert engine.manager.manager.status().chunks_being_promoted == 0
    assert not engine.manager.manager.has_pending_work()


@pytest.mark.parametrize("ends", ["finished", "computed", "computed and not stored"])
def test_who_does_without_waits_for_nothing_more(engine, ends):
    """Nobody steps an engine on for chunks that nobody waits for."""
    context, keys = left_partly_below(engine)
    assert LookupResult.HIT_PENDING in look(engine, context, keys)
    engine.step()
    engine.step()
    assert engine.manager.manager.has_pending_work(), "what was read is held"
    assert not engine.manager.has_pending_work(), "or a pause of vLLM's would wait for who waits for its end"
    if ends == "finished":
        engine.manager.on_request_finished(context)
    else:
        state_of(context).may_store = ends == "computed"
        engine.manager.prepare_store([], context)
    engine.step()
    assert not engine.manager.manager.has_pending_work()


def test_a_store_that_one_rank_failed_is_a_miss(engine, monkeypatch):
    context, keys = engine.request("a", 3)
    output = engine.manager.prepare_store(keys, context)
    engine.transfer(output.store_spec, [0, 1, 2], is_load=False)
    engine.ranks[-1]._arena.note_failed(output.store_spec.slots[1][0])
    engine.manager.complete_store(set(keys), context)
    assert look(engine, context, keys) == [LookupResult.HIT, LookupResult.MISS, LookupResult.HIT]


@pytest.mark.parametrize("reports", [True, False])
def test_a_load_that_failed_is_told_or_ends_the_engine(tmp_path, monkeypatch, reports):
    engine = Engine(str(tmp_path / "arena"), reports_failed_loads=reports)
    context, keys = engine.request("a", 2)
    engine.store(context, keys)
    engine.step()
    look(engine, context, keys)
    spec = engine.manager.prepare_load(keys, context)
    monkeypatch.setattr("octavo.transfer.host_copier.HostCopier.load", lambda *_: frozenset({1}))
    if not reports:
        with pytest.raises(TransferError, match="OctavoConnector"):
            engine.transfer(spec, [4, 5], is_load=True)
        engine.close()
        return
    engine.transfer(spec, [4, 5], is_load=True)
    assert len(engine.ranks[0].take_failed_loads()) == 1
    assert engine.ranks[0].take_failed_loads() == set()
    engine.manager.complete_load(set(keys), context)
    assert look(engine, context, keys)[0] is LookupResult.HIT
    assert engine.manager.manager.status().counters["load_failed"] == 1
    engine.close()


def test_a_bit_that_flips_in_memory_reaches_no_device(tmp_path):
    engine = Engine(str(tmp_path / "arena"), reports_failed_loads=True)
    context, keys = engine.request("a", 3)
    engine.pages[0][:3] = 7
    output = engine.manager.prepare_store(keys, context)
    engine.transfer(output.store_spec, [0, 1, 2], is_load=False)
    engine.shared.slots.view[output.store_spec.slots[1][0], 100] ^= 1
    engine.manager.complete_store(set(keys), context)
    engine.step()
    assert look(engine, context, keys) == [LookupResult.HIT] * 3
    spec = engine.manager.prepare_load(keys, context)
    engine.transfer(spec, [4, 5, 6], is_load=True)
    assert len(engine.ranks[0].take_failed_loads()) == 1
    assert torch.equal(engine.pages[0][[4, 6]], engine.pages[0][[0, 2]])
    assert not engine.pages[0][5].any()
    engine.manager.complete_load(set(keys), context)
    engine.settle()
    assert look(engine, context, keys) == [LookupResult.HIT, LookupResult.MISS, LookupResult.HIT]
    engine.close()


def test_what_stays_in_memory_reaches_no_tier_when_it_is_used_again(engine):
    context, keys = engine.request("a", 2)
    state_of(context).keeps_media = False  # and nobody knows what the request has
    engine.store(context, keys)
    engine.settle()
    assert look(engine, context, keys) == [LookupResult.HIT] * 2
    engine.transfer(engine.manager.prepare_load(keys, context), [4, 5], is_load=True)
    engine.manager.complete_load(set(keys), context)
    engine.settle()
    assert engine.tier.lookup(keys) == [0, 0]


def test_what_other_weights_compute_stays_in_memory_and_what_former_ones_have_computed_is_not_found(engine):
    context, keys = engine.request("a", 2)
    engine.store(context, keys)
    engine.settle()
    under_way, others = engine.announced("b", 2)
    begun = engine.manager.prepare_store(others, under_way)
    engine.transfer(begun.store_spec, [0, 1], is_load=False)
    list(engine.manager.take_events())
    engine.loaded = [Loaded.WEIGHTS]
    engine.step()
    assert next((event.keys, event.removed) for event in engine.manager.take_events()) == (keys, True)
    engine.manager.complete_store(set(others), under_way)
    asking, _ = engine.announced("c", 0)
    assert look(engine, asking, [*keys, *others]) == [LookupResult.MISS] * 4
    going_on = engine.manager.prepare_store(others, under_way)
    assert going_on.keys_to_store == []  # its pages are of former weights
    engine.settle()

    new, newer = engine.announced("d", 2)
    engine.store(new, newer)
    engine.settle()
    assert look(engine, new, newer) == [LookupResult.HIT] * 2
    assert [bool(blocks) for blocks in engine.tier.lookup([*keys, *others, *newer])] == [True] * 2 + [False] * 4


def test_what_an_adapter_computes_stays_in_memory_and_its_successor_finds_nothing_of_it(tmp_path):
    engine = Engine(str(tmp_path / "arena"), takes_adapters=True)
    adapted, its_keys = engine.announced("a", 4, lora_request="an adapter")
    plain, keys = engine.announced("b", 4, lora_request=None)
    engine.store(adapted, its_keys[:2])
    engine.store(plain, keys[:2])
    engine.settle()
    asking, _ = engine.announced("c", 0, lora_request="an adapter")
    assert look(engine, asking, its_keys[:2]) == [LookupResult.HIT] * 2
    engine.loaded = [Loaded.ADAPTER]
    engine.step()
    assert look(engine, asking, its_keys[:2]) == [LookupResult.MISS] * 2
    assert engine.manager.prepare_store(its_keys[2:], adapted).keys_to_store == []  # its pages are of the former
    engine.store(plain, keys[2:])
    engine.settle()
    assert [bool(blocks) for blocks in engine.tier.lookup([*its_keys, *keys])] == [False] * 4 + [True] * 4
    after, _ = engine.announced("d", 0, lora_request=None)
    assert look(engine, after, keys[:1]) == [LookupResult.HIT_PENDING]
    engine.close()


def test_a_session_stays_in_memory_from_its_first_image_on(engine):
    context, keys = engine.announced("a", 4, num_prompt_tokens=2 * TOKENS, mm_features=[])
    state_of(context).keeps_media = False
    engine.store(context, keys[:2])
    engine.told["a"].mm_features.append("an image")
    engine.store(context, keys[2:])
    engine.settle()
    assert [bool(blocks) for blocks in engine.tier.lookup(keys)] == [True, True, False, False]


def test_the_policy_is_told_which_points_are_promised(engine):
    context, keys = engine.announced("a", 4, num_prompt_tokens=3 * TOKENS + 5)
    hashes = [get_offload_block_hash(key) for key in keys]
    output = engine.manager.prepare_store(keys[:3], context)
    assert engine.policy.promised == []  # not before it is there
    engine.transfer(output.store_spec, [0, 1, 2], is_load=False)
    engine.manager.complete_store(set(keys[:3]), context)
    assert engine.policy.promised == [(3 * TOKENS, hashes[2], 0)]
    engine.store(context, keys[3:])  # of the answer
    assert engine.policy.promised == [(3 * TOKENS, hashes[2], 0), (4 * TOKENS, hashes[3], 3 * TOKENS)]


def test_what_follows_a_load_hangs_on_what_was_loaded(engine):
    """vLLM offers only what is new. Without its parent the policy takes that for the beginning of another prompt, at
    whose end nobody can resume."""
    context, keys = engine.announced("a", 3, num_prompt_tokens=3 * TOKENS + 5)
    engine.store(context, keys)
    engine.settle()
    context, keys = engine.announced("a", 5, num_prompt_tokens=5 * TOKENS + 5)
    assert look(engine, context, keys) == [LookupResult.HIT] * 3 + [LookupResult.MISS] * 2
    engine.transfer(engine.manager.prepare_load(keys[:3], context), [4, 5, 6], is_load=True)
    engine.manager.complete_load(set(keys[:3]), context)
    engine.store(context, keys[3:])
    assert engine.policy.parents == dict(zip(keys, [None, *keys], strict=False))
    engine.settle()


def test_a_point_is_promised_again_when_chunks_before_it_come_later(engine):
    context, keys = engine.announced("a", 3, num_prompt_tokens=3 * TOKENS + 5)
    point, block_hash = 3 * TOKENS, get_offload_block_hash(keys[2])
    engine.store(context, keys[2:])
    engine.store(context, keys[:2])
    assert engine.policy.promised == [(point, block_hash, 0), (point, block_hash, point)]


def test_what_the_device_had_is_used_too_and_once(engine):
    context, keys = engine.announced("a", 4, num_prompt_tokens=4 * TOKENS + 5, num_computed_tokens=0)
    engine.store(context, keys)
    engine.settle()
    assert engine.policy.used == [[]]
    context, keys = engine.announced("a", 4, num_prompt_tokens=4 * TOKENS + 5, num_computed_tokens=3 * TOKENS)
    assert engine.manager.prepare_store(keys, context).keys_to_store == []
    assert engine.manager.prepare_store(keys, context).keys_to_store == []
    assert engine.policy.used == [[], keys[:3]]
    context, keys = engine.announced("a", 4, num_prompt_tokens=4 * TOKENS + 5)
    assert look(engine, context, keys[2:]) == [LookupResult.HIT] * 2
    engine.transfer(engine.manager.prepare_load(keys[2:], context), [4, 5], is_load=True)
    engine.manager.complete_load(set(keys[2:]), context)
    assert engine.policy.used == [[], keys[:3], keys]
    # stored, resumed, offered twice, resumed: each end, and how far the same request had promised
    ends = [(4, 0), (3, 0), (4, 3), (4, 4), (4, 0)]
    promised = [(end * TOKENS, get_offload_block_hash(keys[end - 1]), before * TOKENS) for end, before in ends]
    assert engine.policy.promised == promised
    engine.settle()


@pytest.mark.parametrize(("vllm_sees", "told"), [(0, 3 * TOKENS), (2 * TOKENS, 3 * TOKENS), (4 * TOKENS, 4 * TOKENS)])
def test_vllm_is_told_where_a_stored_prompt_was_left(engine, vllm_sees, told):
    engine.store(*engine.request("a", 3))
    context, keys = engine.announced("a", 5, num_prompt_tokens=5 * TOKENS, shared_prefix_boundary=vllm_sees)
    assert look(engine, context, keys) == [LookupResult.HIT] * 3 + [LookupResult.MISS] * 2
    assert engine.told["a"].shared_prefix_boundary == told


def test_vllm_is_told_of_a_branch_where_drafts_let_the_next_one_resume(tmp_path):
    engine = Engine(str(tmp_path / "arena"), is_draft=True)
    engine.store(*engine.request("a", 3))
    context, keys = engine.announced("a", 5, num_prompt_tokens=5 * TOKENS, shared_prefix_boundary=0)
    look(engine, context, keys)
    assert engine.told["a"].shared_prefix_boundary == 2 * TOKENS
    engine.close()


def test_vllm_is_told_of_a_branch_again_when_it_has_looked_anew(engine):
    engine.store(*engine.request("a", 3))
    context, keys = engine.announced("a", 5, num_prompt_tokens=5 * TOKENS, shared_prefix_boundary=0)
    look(engine, context, keys)
    engine.step()
    engine.told["a"].shared_prefix_boundary = 0  # as the device has nothing
    state_of(context).outlook = Outlook.COMPUTE
    assert look(engine, context, keys[:1]) == [LookupResult.MISS]
    assert engine.told["a"].shared_prefix_boundary == 3 * TOKENS


LONG = 100 * TOKENS + 5
INSIDE = 94 * TOKENS


def long_prompt():
    """A request of a long prompt, vLLM's own of it, the rule of a model with a light window, and the keys of that."""
    full = FullAttentionSpec(block_size=TOKENS, num_kv_heads=1, head_size=1)
    window = SlidingWindowSpec(block_size=TOKENS, num_kv_heads=1, head_size=1, sliding_window=2 * TOKENS)
    groups = [GroupOffloadConfig(spec=spec, blocks_per_chunk=1, page_size_bytes=1) for spec in (full, window)]
    context = ReqContext(req_id="a")
    keys = [make_offload_key(number.to_bytes(32), 1) for number in range(LONG // TOKENS)]
    for number, key in enumerate(keys, 1):
        context.set_offload_key_position(key, number * TOKENS)
    request = SimpleNamespace(block_hashes=[], num_prompt_tokens=LONG, shared_prefix_boundary=0, held=context)
    state = state_of(context)
    state.begin(request, TOKENS)
    return state, request, PromisedChunks(groups), keys


@pytest.mark.parametrize(
    ("known", "resumed", "vllm_sees", "told"),
    [
        (0, 0, 0, INSIDE),
        (50, 0, 0, 50 * TOKENS),
        (50, 40, 0, 50 * TOKENS),
        (50, 50, 0, INSIDE),
        (0, 0, 40, 40 * TOKENS),
        (98, 98, 0, 0),
    ],
    ids=["new", "left by others", "resumed before", "resumed there", "left on the device", "nearly all is there"],
)
def test_vllm_is_told_where_to_keep_what_the_next_prompt_may_want(known, resumed, vllm_sees, told):
    state, request, promised, keys = long_prompt()
    state.known_tokens, request.shared_prefix_boundary = known * TOKENS, vllm_sees * TOKENS
    for _ in range(2):  # vLLM asks for many chunks
        state.tell_point(promised, resumed * TOKENS)
    assert request.shared_prefix_boundary == told
    first_inside = INSIDE // TOKENS - 2
    assert (keys[first_inside] in state.promised(keys, promised)) is (told == INSIDE)


def test_a_point_inside_gives_way_to_a_branch_when_vllm_looks_anew():
    state, request, promised, keys = long_prompt()
    state.tell_point(promised, 0)
    request.shared_prefix_boundary = 0  # vLLM looks anew
    state.known_tokens = 50 * TOKENS
    state.tell_point(promised, 0)
    assert request.shared_prefix_boundary == 50 * TOKENS
    assert keys[INSIDE // TOKENS - 2] not in state.promised(keys, promised)


def test_a_retained_prompt_weighs_more_until_it_is_released(engine):
    context, keys = engine.announced("a", 4, hints={"retain": "1h"}, num_prompt_tokens=3 * TOKENS + 5)
    prompts_end, answers_end = (get_offload_block_hash(key) for key in keys[2:])
    engine.store(context, keys)
    assert engine.policy.weights == {prompts_end: 16.0}
    engine.manager.on_request_finished(context)
    assert engine.policy.weights == {prompts_end: 16.0, answers_end: 16.0}
    assert engine.manager.manager.retentions.retained_bytes(state_of(context).tenant) == sum(
        group.chunk_bytes * 4 for group in engine.groups
    )
    engine.now += 1800
    engine.step()
    assert engine.policy.weights[prompts_end] == pytest.approx(8.5)
    engine.announced("a", 4, hints={"release": True}, num_prompt_tokens=3 * TOKENS + 5)
    assert engine.policy.weights == {prompts_end: 1.0, answers_end: 1.0}
    outcomes = engine.manager.manager.retentions.outcomes
    assert outcomes == {(HintKind.RETAIN, HintOutcome.TAKEN): 2, (HintKind.RELEASE, HintOutcome.TAKEN): 1}
    engine.settle()


def test_what_is_demoted_goes_first(engine):
    context, keys = engine.announced("a", 4, hints={"demote": True}, num_prompt_tokens=3 * TOKENS + 5)
    engine.store(context, keys)
    assert engine.policy.weights == {}
    engine.manager.on_request_finished(context)
    assert engine.policy.weights == {get_offload_block_hash(key): 0.0 for key in keys[2:]}
    engine.settle()


def test_a_request_that_was_never_served_hints_nothing(engine):
    context, _ = engine.announced("a", 4, hints={"demote": True, "retain": "1h"}, num_prompt_tokens=3 * TOKENS + 5)
    engine.manager.on_request_finished(context)
    assert engine.policy.weights == {}


def test_a_prompt_without_a_boundary_has_no_point_to_retain(engine):
    context, _ = engine.announced("a", 0, hints={"retain": "1h", "demote": True}, num_prompt_tokens=TOKENS - 1)
    engine.manager.prepare_store([], context)
    engine.manager.on_request_finished(context)
    outcomes = engine.manager.manager.retentions.outcomes
    assert outcomes == {(HintKind.RETAIN, HintOutcome.NO_POINT): 1}


@pytest.mark.parametrize("hints", [{"retain": "2 weeks"}, {"retian": "2h"}, "2h", [], 7])
def test_wrong_hints_are_named_once_and_harm_nobody(engine, caplog, hints):
    context, keys = engine.announced("a", 4, hints=hints, num_prompt_tokens=3 * TOKENS + 5)
    engine.store(context, keys)
    engine.manager.on_request_finished(context)
    assert engine.policy.weights == {}
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("Octavo ignores the hints of a request: kv_transfer_params")
    engine.settle()


def test_reset_frees_what_vllm_speaks_of_no_more(engine):
    context, keys = engine.request("a", 3)
    engine.store(context, keys)
    engine.step()
    look(engine, context, keys)
    engine.manager.prepare_load(keys, context)
    assert engine.manager.prepare_store(engine.request("b", 2)[1], engine.request("b", 2)[0]) is not None
    engine.manager.reset_cache()
    assert look(engine, context, keys) == [LookupResult.MISS] * 3
    engine.settle()
    if hasattr(VllmManager, "on_reset_flushed"):
        assert engine.manager.manager.status().free_slots == 3, "ranks may still write"
        engine.manager.on_reset_flushed()
    engine.manager.manager.check_invariants()
    assert engine.manager.manager.status().free_slots == 8


def test_what_a_reset_forgets_is_told(engine):
    """vLLM's device tells of a clear only if no request holds pages, and the reset of what is below succeeds anyway."""
    context, keys = engine.request("a", 2)
    engine.store(context, keys)
    engine.settle()
    list(engine.manager.take_events())
    engine.manager.reset_cache()
    engine.settle()
    events = [(e.medium.value, e.ownership, e.removed, e.keys) for e in engine.manager.take_events()]
    assert events == [("CPU", None, True, keys), ("STORAGE", "faulty", True, keys)]


def test_what_is_here_is_told_anew_after_a_clear_of_the_device(engine):
    context, keys = engine.request("a", 2)
    engine.store(context, keys)
    engine.settle()
    list(engine.manager.take_events())
    for device, told in (([], []), ([AllBlocksCleared()], [("CPU", False), ("STORAGE", False)])):
        events = list(device)  # so does vLLM's scheduler collect them
        events.extend(engine.manager.take_events())
        assert [(event.medium.value, event.removed) for event in events[len(device) :] if event.keys == keys] == told


def test_who_is_served_at_a_reset_stores_no_more(engine):
    """vLLM would store what lies now where their windows once were."""
    context, keys = engine.request("a", 3)
    engine.manager.on_new_request(context)
    engine.manager.reset_cache()
    output = engine.manager.prepare_store(keys, context)
    assert output is not None
    assert output.keys_to_store == []
    later, others = engine.request("b", 3)
    engine.manager.on_new_request(later)
    engine.store(later, others)
    assert look(engine, later, others) == [LookupResult.HIT] * 3


def test_who_begins_after_a_reset_stores(engine):
    """It waited, or was preempted: vLLM asks for it with no page of before."""
    context, keys = engine.announced("a", 3)
    for _ in range(2):
        engine.manager.reset_cache()
        assert look(engine, context, keys) == [LookupResult.MISS] * 3
        engine.store(context, keys)
        assert look(engine, context, keys) == [LookupResult.HIT] * 3
    engine.manager.reset_cache()
    assert engine.manager.prepare_store(keys, context).keys_to_store == []


@pytest.mark.parametrize("why", ["only decodes", "served at a reset", "a session's later part"])
def test_who_stores_nothing_uses_and_hints(tmp_path, why):
    engine = Engine(str(tmp_path / "arena"), stores=why != "only decodes")
    known = {"num_prompt_tokens": 3 * TOKENS + 5, "num_computed_tokens": 3 * TOKENS}
    context, keys = engine.announced("a", 3, hints={"retain": "1h"}, **known)
    if why == "served at a reset":
        engine.manager.reset_cache()
    if why == "a session's later part":
        engine.told["a"].num_prompt_tokens += TOKENS
    assert engine.manager.prepare_store(keys, context).keys_to_store == []
    assert engine.policy.used == [keys]
    assert engine.policy.promised == [(3 * TOKENS, get_offload_block_hash(keys[-1]), 0)]
    assert engine.policy.weights == {get_offload_block_hash(keys[-1]): 16.0}
    engine.close()


def test_events_name_medium_and_owner(engine):
    context, keys = engine.request("a", 2)
    engine.store(context, keys)
    engine.settle()
    events = [(e.medium.value, e.ownership, e.removed, len(e.keys)) for e in engine.manager.take_events()]
    assert ("CPU", None, False, 2) in events
    assert ("STORAGE", "faulty", False, 2) in events


def test_loads_of_what_was_not_looked_up_are_refused(engine):
    context, keys = engine.request("a", 2)
    with pytest.raises(OffloadError, match="not looked up"):
        engine.manager.prepare_load(keys, context)


@pytest.mark.parametrize("ends", ["computed", "loaded", "waiting"])
def test_what_is_known_of_a_request_ends_with_it(engine, ends):
    """And with it vLLM's own request, which may have large images: nobody waits for Python to look for cycles."""
    engine.store(*engine.request("a", 2))
    engine.settle()
    if ends == "waiting":
        engine.manager.manager._resident.drop(list(engine.manager.manager._resident.index))
    gc.collect()
    gc.disable()
    try:
        assert [known() for known in serve_and_drop(engine, ends)] == [None, None]
    finally:
        gc.enable()


def serve_and_drop(engine, ends):
    """A request that ends. A function of its own: Python's frames keep what a walk over them has shown."""
    context, keys = engine.announced("a", 2)
    look(engine, context, keys)
    if ends == "loaded":
        engine.manager.prepare_load(keys, context)
        engine.manager.complete_load(set(keys), context)
    elif ends == "computed":
        engine.manager.prepare_store([], context)
    engine.step()
    engine.manager.on_request_finished(context)
    return ref(context), ref(state_of(context))


def test_a_request_may_forbid_tiers(engine):
    context, keys = engine.request("a", 1)
    engine.store(context, keys)
    forbidding = ReqContext(req_id="b", load_tier_filter=SimpleNamespace(allows=lambda *_: False))
    assert engine.manager.lookup(keys[0], forbidding) is LookupResult.MISS


@pytest.fixture
def asking(tmp_path):
    """An engine over a tier that must be asked ahead, and has what a request of another one has stored."""
    made = Engine(str(tmp_path / "arena"), num_slots=4, tier=SlowToAnswer())
    for name in ("a", "b"):  # the second takes the memory
        made.store(*made.announced(name, 4))
        made.settle()
    made.tier.has_answered = False
    made.tier.told.clear()
    yield made
    made.close()


def test_a_store_is_told_of_what_a_nearer_tier_has(asking):
    """What is read there is written to the store, which files it by its sequence."""
    asking.tier.has_answered = True
    context, keys = asking.announced("a", 4)
    for _ in range(2):
        assert LookupResult.MISS not in look(asking, context, keys)
        asking.step()
    ((sequence, wants_answer),) = asking.tier.told
    assert not wants_answer
    assert [list(chain.keys) for chain in sequence.chains] == [keys]


def test_what_a_store_answers_is_a_hit(asking):
    context, keys = asking.announced("a", 4)
    for _ in range(3):
        assert look(asking, context, keys) == [LookupResult.RETRY] * 4
        asking.step()
    asking.tier.has_answered = True
    assert look(asking, context, keys) == [LookupResult.HIT_PENDING] * 4
    asking.step()
    asking.step()
    assert look(asking, context, keys) == [LookupResult.HIT] * 4
    asked = asking.tier.told
    assert len(asked) == 3, "once in each step, of whole sequences"
    assert all(list(sequence.chains[0].keys) == keys and wants for sequence, wants in asked)


def test_a_request_waits_for_one_answer_and_no_longer_than_the_deadline(asking):
    context, keys = asking.announced("a", 4)
    assert look(asking, context, keys) == [LookupResult.RETRY] * 4
    asking.step()
    asking.now += TIMEOUT_S
    assert look(asking, context, keys) == [LookupResult.MISS] * 4
    asking.step()
    assert look(asking, context, keys) == [LookupResult.MISS] * 4
    assert len(asking.tier.told) == 1


def test_a_store_is_not_asked_for_what_is_in_memory(asking):
    context, keys = asking.announced("b", 4)
    assert look(asking, context, keys) == [LookupResult.HIT] * 4
    assert not asking.tier.told


def test_a_store_is_told_of_what_will_be_stored(asking):
    context, keys = asking.announced("c", 4)
    asking.store(context, keys)
    ((sequence, wants_answer),) = asking.tier.told
    assert (list(sequence.chains[0].keys), wants_answer) == (keys, False)


def test_who_only_decodes_stores_nothing(tmp_path):
    engine = Engine(str(tmp_path / "arena"), stores=False)
    context, keys = engine.announced("a", 4)
    output = engine.manager.prepare_store(keys, context)
    assert output.keys_to_store == []
    engine.close()


def why(engine, caplog, context, keys):
    """What the log says of a request that looked for these, and ended."""
    with caplog.at_level("INFO", logger="vllm.octavo"):
        look(engine, context, keys)
        engine.step()
        engine.manager.on_request_finished(context)
    report = find_report(caplog.text.splitlines(), context.req_id)
    assert report is not None
    return report


def test_the_log_says_what_was_never_stored(engine, caplog):
    context, keys = engine.request("a")
    engine.store(context, keys[:4])
    again, _ = engine.request("a-again")
    for i, key in enumerate(keys):
        again.set_offload_key_position(key, (i + 1) * TOKENS)
    report = why(engine, caplog, again, keys)
    (missed,) = report.missed
    assert (missed.cause, missed.tokens_until, missed.left) == (Cause.NEVER_KEPT, 5 * TOKENS, [])
    assert sum(report.found.values()) == 4
    assert any("never kept" in line for line in tell_misses(report))


def test_the_log_says_what_memory_and_tier_gave_up(tmp_path, caplog):
    engine = Engine(str(tmp_path / "arena"), num_slots=8, tier_bytes=8 * PAGE)
    try:
        _, keys = engine.request("first")
        for name in ("first", "second", "third"):
            engine.store(*engine.request(name))
            engine.settle()
            list(engine.manager.take_events())
        again, _ = engine.request("again")
        again.set_offload_key_position(keys[0], TOKENS)
        report = why(engine, caplog, again, keys[:1])
        (missed,) = report.missed
        assert (missed.cause, report.found) == (Cause.EVICTED, {})
        assert "memory" in [left.medium for left in missed.left]
        assert {left.how for left in missed.left} == {"evicted"}
    finally:
        engine.close()


def test_stats_are_told_once(engine):
    context, keys = engine.request("a", 2)
    engine.store(context, keys)
    first = engine.manager.get_stats()
    assert first is not None
    assert first.data["data"]["octavo_tier_events"]["memory", "stored"] == 2
    assert engine.manager.get_stats() is None
    engine.now += 1
    assert ("memory", "stored") not in engine.manager.get_stats().data["data"].get("octavo_tier_events", {})


def test_a_load_between_two_looks_is_told(engine):
    """There may be no third look: an engine with nothing to do takes no step."""
    context, keys = engine.request("a", 2)
    engine.store(context, keys)
    engine.settle()
    engine.manager.get_stats()
    spec = engine.manager.prepare_load(keys, context)
    engine.transfer(spec, [4, 5], is_load=True)
    engine.manager.complete_load(set(keys), context)
    stats = engine.manager.get_stats()
    assert stats is not None
    assert stats.data["data"]["octavo_tier_events"]["memory", "loaded"] == 2


def test_notes_lie_before_the_slots(tmp_path: Path) -> None:
    engine = Engine(str(tmp_path / "arena"), num_ranks=2)
    engine.store(*engine.request("a", 8))
    assert not np.any(engine.shared._notes.has_failed)
    engine.close()


def test_an_arena_is_open_no_longer_than_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, closed, close = Engine(str(tmp_path / "arena")), [], RankArena.close

    def noted(arena: RankArena) -> None:
        closed.append(arena)
        close(arena)

    def no_worker(*_: Any, **__: Any) -> Any:
        raise TransferError("no memory can be pinned")

    monkeypatch.setattr(RankArena, "close", noted)
    context, keys = engine.request("a", 2)
    output = engine.manager.prepare_store(keys, context)
    assert output is not None
    with monkeypatch.context() as broken:
        broken.setattr("octavo.vllm_plugin.adapter.worker.CpuWorker", no_worker)
        with pytest.raises(TransferError, match="no memory can be pinned"):
            engine.transfer(output.store_spec, [0, 1], is_load=False)
    assert len(closed) == 1
    engine.transfer(output.store_spec, [0, 1], is_load=False)
    engine.manager.complete_store(set(keys), context)
    assert look(engine, context, keys) == [LookupResult.HIT] * 2
    engine.close()
    assert len(set(map(id, closed))) == len(closed) == 2


def test_ranks_that_have_the_same_bytes_keep_one_copy(tmp_path: Path) -> None:
    engine = Engine(str(tmp_path / "arena"), num_ranks=2, page=replicated_page(PAGE))
    assert engine.groups[0].chunk_bytes == PAGE
    resume_what_was_stored(engine, lambda rank, row: torch.full((PAGE,), row + 1, dtype=torch.int8))


def test_ranks_that_share_heads_write_what_one_rank_has(tmp_path: Path) -> None:
    page = attention_page(num_heads=4, head_bytes=PAGE // 32, num_tokens=16, heads_first=False)
    engine = Engine(str(tmp_path / "arena"), num_ranks=2, page=page)
    first = resume_what_was_stored(engine, lambda rank, row: torch.full((PAGE,), 2 * row + rank, dtype=torch.int8))
    tokens = first.reshape(16, 2, PAGE // 16)
    assert [set(tokens[:, rank].reshape(-1).tolist()) for rank in range(2)] == [{0}, {1}]


def resume_what_was_stored(engine: Engine, content: Any) -> Any:
    """Every rank's pages come back. What is stored of the first block."""
    context, keys = engine.request("a", 8)
    for rank, pages in enumerate(engine.pages):
        for row in range(8):
            pages[row] = content(rank, row)
    engine.store(context, keys)
    assert [engine.manager.lookup(key, context) for key in keys] == [LookupResult.HIT] * 8
    spec = engine.manager.prepare_load(keys, context)
    engine.transfer(spec, list(range(8, 16)), is_load=True)
    engine.manager.complete_load(keys, context)
    for pages in engine.pages:
        assert torch.equal(pages[8:], pages[:8])
    first = engine.shared.slots.view[spec.slots[0][0]].copy()
    engine.close()
    return first
