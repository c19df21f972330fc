"""Faults in the media below the device: no token differs, no page stays held, nothing hangs, and what has come to
itself is used again."""

import random
import time
from contextlib import contextmanager
from errno import EIO, ENOSPC

import pytest
from workloads import (
    LONGEST_WAIT_S,
    Clock,
    Delay,
    FaultySpec,
    check_nothing_is_held,
    families,
    forget_device,
    generate,
    resumed,
)

from octavo.engine.tiny_families import VOCAB_SIZE
from octavo.offload import LoadRule, OffloadConfig
from octavo.tiers import TierState
from octavo.tiers.disk import DiskConfig, DiskSpec
from rigs.faulty_disk import FaultyDiskIO
from rigs.faulty_tier import TierFault
from rigs.naive_tier import NaiveSpec

FAMILIES = ["gemma3", "llama4", "deepseek_v3", "qwen3_next"]
NEW_TOKENS = 8


family = families(*FAMILIES)


@pytest.fixture(scope="module")
def prompts(family):
    chooser = random.Random(family.name)
    shared = [chooser.randrange(3, VOCAB_SIZE) for _ in range(50)]
    shapes = [(shared, 17), ([], 120), (shared, 40), ([], 64)]
    return [family.choose(chooser, prefix, num_own, NEW_TOKENS) for prefix, num_own in shapes]


class World:
    """An engine whose tier below a small staging area may be spoiled."""

    def __init__(self, family, prompts, tier):
        self.family, self.prompts, self.clock = family, prompts, Clock()
        config = OffloadConfig(staging=4 << 20, tiers=(tier,), loads=LoadRule.ALWAYS)
        self.engine = family.engine(offload=config, clock=self.clock)

    def serve(self, *, seconds_per_step=0.0):
        """Answers to all prompts are right; how many tokens of them came from the tier."""
        medium = self.engine._offload.status().tiers[0][0]
        before = resumed(self.engine).get(medium, 0)
        skip = lambda: self.clock.skip(seconds_per_step)  # noqa: E731
        for prompt, answer in zip(
            self.prompts, generate(self.engine, self.prompts, NEW_TOKENS, between_steps=skip), strict=True
        ):
            answer.check_is(self.family.answer(prompt, NEW_TOKENS))
        return resumed(self.engine).get(medium, 0) - before

    def fill(self):
        """Everything is on the tier, and only there."""
        self.serve()
        forget_device(self.engine)

    def counters(self):
        return self.engine._offload.status().counters

    def tier_counters(self):
        return self.engine._offload.status().tiers[0][1].counters

    def recover(self):
        """All pauses end; what the faults have destroyed is computed and stored, and found again."""
        check_nothing_is_held(self.engine, self.clock)
        lower = self.engine._offload._manager._below.lowers[0]
        began = time.monotonic()
        while not lower.is_available or lower.status().state is TierState.DEGRADED:
            self.clock.skip(1.0)
            self.engine.rest()
            assert time.monotonic() - began < LONGEST_WAIT_S, "the tier stays off"
        for _ in range(2):  # a disk that was full takes no stores for a while: it notes when, and lets it pass
            self.clock.skip(120.0)
            self.engine.rest()
        self.engine.manager.reset_prefix_cache()
        self.serve()
        forget_device(self.engine)
        assert self.serve() > 0
        check_nothing_is_held(self.engine, self.clock)
        self.engine.close()


@pytest.mark.parametrize(
    ("fault", "counter"),
    [
        (TierFault.REFUSES, "promotion_refused"),
        (TierFault.FAILS, "promotion_failed"),
        (TierFault.HANGS, "promotion_late"),
        (TierFault.LOSES, "promotion_failed"),
    ],
)
def test_a_tier_that_misbehaves(family, prompts, fault, counter):
    spec = FaultySpec(NaiveSpec(16 << 20))
    world = World(family, prompts, spec)
    world.fill()
    spec.tier.fault = fault
    assert world.serve(seconds_per_step=1.0) == 0
    assert world.counters()[counter] > 0
    spec.tier.fault = TierFault.NONE
    world.recover()


def test_a_tier_that_misbehaves_while_it_is_written_to(family, prompts):
    """Promises that cannot be kept cost no request anything."""
    spec = FaultySpec(NaiveSpec(16 << 20))
    world = World(family, prompts, spec)
    for fault in (TierFault.REFUSES, TierFault.FAILS, TierFault.HANGS):
        spec.tier.fault = fault
        world.serve(seconds_per_step=1.0)
        world.engine.manager.reset_prefix_cache()
    counters = world.counters()
    assert counters["write_through_dropped"] > 0
    assert counters["write_through_failed"] > 0
    spec.tier.fault = TierFault.NONE
    world.recover()


def disk(folder):
    io = FaultyDiskIO()
    config = {"path": str(folder), "size": "64MiB", "hang_seconds": 3600}  # the clock jumps while the disk works
    return io, DiskSpec(DiskConfig.from_mapping(config), io)


@contextmanager
def broken(io, how):
    if how == "hangs":
        with io.hanging("read"):
            yield
        return
    if how == "flips a bit":
        io.flips_a_bit = True
    else:
        io.fail("read", errno=EIO)
    yield
    io.heal()


@pytest.mark.parametrize("how", ["fails", "flips a bit", "hangs"])
def test_a_disk_that_breaks(family, prompts, tmp_path, how):
    io, spec = disk(tmp_path)
    world = World(family, prompts, spec)
    world.fill()
    with broken(io, how):
        num_loaded = world.serve(seconds_per_step=0.5 if how == "hangs" else 0.0)
    assert io.num_faults > 0
    if how == "flips a bit":  # one in each read, of many records
        assert world.tier_counters()["corrupt"] > 0
    else:
        assert num_loaded == 0
    assert world.counters()["promotion_late" if how == "hangs" else "promotion_failed"] > 0
    world.recover()


def test_a_full_disk(family, prompts, tmp_path):
    io, spec = disk(tmp_path)
    world = World(family, prompts, spec)
    io.fail("write", "allocate", errno=ENOSPC)
    world.serve()
    world.engine.manager.reset_prefix_cache()
    world.serve()
    assert io.num_faults > 0
    io.heal()
    world.recover()


def test_transfers_that_begin_late(family, prompts):
    """In a pool in which everybody wants the pages that a store is yet to read."""
    clock = Clock()
    memory = int(family.least_memory() * 1.1)
    engine = family.engine(memory, offload={"memory": "8MiB"}, clock=clock, delay=Delay(6))
    for _ in range(4):
        for prompt, answer in zip(prompts, generate(engine, prompts, NEW_TOKENS), strict=True):
            answer.check_is(family.answer(prompt, NEW_TOKENS))
    assert resumed(engine)["memory"] > 0
    check_nothing_is_held(engine, clock)
    engine.close()


def test_loads_that_come_too_late(family, prompts):
    """Requests go on without them; what arrives later harms nobody."""
    clock = Clock()
    delay = Delay()
    engine = family.engine(offload={"memory": "8MiB", "load_timeout_s": 5}, clock=clock, delay=delay)
    generate(engine, prompts, NEW_TOKENS)
    forget_device(engine)
    delay.num_steps = 40
    answers = generate(engine, prompts, NEW_TOKENS, between_steps=lambda: clock.skip(1.0))
    for prompt, answer in zip(prompts, answers, strict=True):
        answer.check_is(family.answer(prompt, NEW_TOKENS))
    assert engine.offload_stats().loads_late > 0
    check_nothing_is_held(engine, clock)
    engine.close()


def test_bits_that_flip_in_memory(family, prompts):
    """In every slot of the arena: no chunk reaches the device."""
    clock = Clock()
    engine = family.engine(offload={"memory": "8MiB"}, clock=clock)
    for _ in range(2):
        for prompt, answer in zip(prompts, generate(engine, prompts, NEW_TOKENS), strict=True):
            answer.check_is(family.answer(prompt, NEW_TOKENS))
        forget_device(engine)
        engine._offload._manager.arena.view[:, 7] ^= 16
    assert engine.offload_stats().failed_load_chunks > 0
    check_nothing_is_held(engine, clock)
    engine.close()


def test_bits_that_flip_on_disk_between_two_lives(family, prompts, tmp_path):
    _, spec = disk(tmp_path)
    world = World(family, prompts, spec)
    world.fill()
    world.engine.close()
    for segment in tmp_path.glob("segment-*"):
        data = bytearray(segment.read_bytes())
        data[5000::1024] = bytes(byte ^ 1 for byte in data[5000::1024])
        segment.write_bytes(data)
    world = World(family, prompts, disk(tmp_path)[1])
    assert world.serve() == 0
    world.recover()
