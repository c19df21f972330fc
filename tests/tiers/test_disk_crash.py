"""A process that writes is killed at random moments: what is served is right, and what was flushed is there.

`OCTAVO_CRASHES` says how often (`make crash`: 200). A kill comes right after a word of the child's, so it falls into
whatever the child does next; which word is random, from a seed that the test's name shows.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import disk_crash_child as child

from octavo.chunks import ChunkBytes

NUM_CRASHES = int(os.environ.get("OCTAVO_CRASHES", "5"))
CRASHES_PER_DIRECTORY = 10
MOST_WORDS = 25


def write_until_killed(directory, first, size, draw):
    """The number before which all is durable."""
    command = [sys.executable, child.__file__, str(directory), str(first), size]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        durable = first
        for _ in range(draw.randrange(MOST_WORDS)):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            durable = int(line)
        for _ in range(draw.randrange(20_000)):  # a few milliseconds at most, to fall anywhere into a round
            pass
        process.kill()
        for line in process.stdout:  # what it said before it died
            durable = int(line)
    return durable


def load(tier, number):
    """The bytes of a chunk, or None."""
    length = len(child.content(number))
    memory = bytearray(length)
    assert tier.submit_load(number, [ChunkBytes(child.key(number), [memoryview(memory)], -1)])
    return None if child.finish(tier, number) else bytes(memory)


@pytest.mark.parametrize("size", ["64MiB", "768KiB"])
@pytest.mark.parametrize("seed", range(-(-NUM_CRASHES // CRASHES_PER_DIRECTORY)))
def test_killed(tmp_path, seed, size):
    """With room for everything, and with so little that segments are evicted all the time."""
    draw = random.Random(seed)
    durable = 0
    crashes = min(CRASHES_PER_DIRECTORY, NUM_CRASHES)
    for _ in range(-(-crashes // 2)):  # half of them in each of the two sizes
        started = durable
        durable = write_until_killed(tmp_path, started, size, draw)
        tier = child.open_tier(tmp_path, size)
        try:
            numbers = range(durable + 200)
            found = {n for n, mask in zip(numbers, tier.lookup([child.key(n) for n in numbers]), strict=True) if mask}
            assert size != "64MiB" or set(range(durable)) <= found, "what was flushed is there"
            assert durable == started or durable - 1 in found, "the last that was flushed is there"
            checked = [n for n in found if n >= started] + draw.sample(sorted(found), min(len(found), 20))
            for number in checked:
                assert load(tier, number) == child.content(number)
            status = tier.status()
            assert sum(f.stat().st_size for f in tmp_path.iterdir()) <= status.bytes_used <= status.bytes_budget
        finally:
            tier.close()
        durable = max(found, default=-1) + 1 if size == "768KiB" else durable
