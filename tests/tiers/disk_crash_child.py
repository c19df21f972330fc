"""A process that writes to a disk tier until it is killed: `disk_crash_child.py DIRECTORY FIRST_NUMBER SIZE`.

Chunks are numbered on from the first. After each flush that holds it prints the number before which all is durable.
"""

import random
import sys
import time
from pathlib import Path

from octavo.chunks import ALL_BLOCKS, ChunkBytes, make_offload_key
from octavo.ids import BlockHash
from octavo.tiers.base import TierContext
from octavo.tiers.disk import DiskTier
from octavo.tiers.disk.config import DiskConfig
from octavo.tiers.disk.io import DiskIO

MAX_CHUNK_BYTES = 9000
CHUNKS_PER_JOB = 5
JOBS_PER_FLUSH = 3


def key(number):
    return make_offload_key(BlockHash(number.to_bytes(32, "big")), number % 3)


def content(number):
    draw = random.Random(number)
    return draw.randbytes(draw.randrange(1, MAX_CHUNK_BYTES))


def open_tier(directory, size):
    config = {"path": str(directory), "size": size, "segment_size": 1 << 17, "read_threads": 1}
    context = TierContext(namespace=bytes(range(16)), max_chunk_bytes=MAX_CHUNK_BYTES)
    return DiskTier(DiskConfig.from_mapping(config), context, DiskIO())


def finish(tier, job_id):
    """Waits for the job: what failed of it."""
    while True:
        for result in tier.poll(time.monotonic()):
            assert result.job_id == job_id
            return result.failed
        tier.wait(1.0)


def store(tier, numbers):
    chunks = [ChunkBytes(key(n), [memoryview(bytearray(content(n)))], ALL_BLOCKS) for n in numbers]
    assert tier.submit_store(numbers[0], chunks)
    assert not finish(tier, numbers[0])


def main(directory, first, size):
    tier = open_tier(directory, size)
    number = first
    while True:
        for _ in range(JOBS_PER_FLUSH):
            store(tier, range(number, number + CHUNKS_PER_JOB))
            number += CHUNKS_PER_JOB
        assert tier.flush(30.0)
        print(number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
