"""Makes the golden files of the disk format, version 3: `make_disk_golden.py FOLDER`.

One sealed segment and one marker of a reset, by the tier itself at a fixed time. Readers of every later version must
read them; a test compares what is made with what is in the repository, byte for byte.
"""

import sys
import tempfile
from pathlib import Path

from octavo.chunks import ChunkBytes, make_offload_key, name_tenant
from octavo.ids import BlockHash
from octavo.tiers import TierContext
from octavo.tiers.disk import DiskConfig, DiskIO, DiskTier, marker_name, write_marker

NAMESPACE = bytes(range(16))
CHUNKS = [
    (make_offload_key(BlockHash(bytes([n]) * 32), n), bytes(range(100 * (n + 1))), mask, name_tenant(salt))
    for n, mask, salt in [(0, -1, None), (1, 0b101, "a tenant")]
]
CREATED_NS = 1_700_000_000_000_000_000


class ClockThatStands(DiskIO):
    def wall_time_ns(self) -> int:
        return CREATED_NS


def make(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        config = DiskConfig.from_mapping({"path": directory, "size": "1MiB", "segment_size": "64KiB"})
        tier = DiskTier(config, TierContext(namespace=NAMESPACE, max_chunk_bytes=1000), ClockThatStands())
        chunks = [
            ChunkBytes(key, [memoryview(bytearray(content))], mask, tenant=tenant)
            for key, content, mask, tenant in CHUNKS
        ]
        assert tier.submit_store(1, chunks)
        assert tier.flush(30.0)
        tier.close()
        io = DiskIO()
        io.enter(Path(directory))
        write_marker(io, NAMESPACE, 7)
        (segment,) = Path(directory).glob("segment-*")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "segment-v3.octavo").write_bytes(segment.read_bytes())
        (folder / "reset-v3").write_bytes((Path(directory) / marker_name(NAMESPACE)).read_bytes())


if __name__ == "__main__":
    make(Path(sys.argv[1]))
