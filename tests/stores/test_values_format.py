"""Names and bytes of values are those of version 1, which servers out there are full of: the same in every store."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import pytest
from redis import Redis

from octavo.chunks import ALL_BLOCKS, NO_TENANT, ChunkBytes, ChunkChain, OffloadKey, SequenceNames, name_tenant
from octavo.offload import SharedConfig
from octavo.stores import Envelopes
from octavo.testing import tier_driver
from octavo.tiers import TierContext, spec_from_config
from octavo.tiers.disk import RecordCipher
from rigs.objects_suite import PATIENT

GOLDEN = Path(__file__).parent / "golden" / "values-v1.txt"
DESCRIBED = GOLDEN.with_name("described-v1.txt")
"""The description of a namespace: Redis and Valkey only."""
IDENTITY = {"model": "org/kiel", "plan": "2 full_attention", "dtype": "bfloat16"}
FAMILY = bytes(range(16, 32))
EPOCH = "0123456789abcdef"
KEY = bytes(range(32))
MOONCAKE = """
import os, sys
from mooncake.store import MooncakeDistributedStore

store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", sys.argv[1]) == 0
for line in sys.stdin:
    name, _, value = line.strip().partition(" ")
    assert not value or store.put(name, bytes.fromhex(value)) == 0
    print(f"VALUE {name} {store.get(name).hex()}", flush=True)
os._exit(0)
"""


class Piece(NamedTuple):
    key: OffloadKey
    held_blocks: int
    content: bytes
    tenant: bytes = NO_TENANT


PLAIN = [
    Piece(tier_driver.key(1), ALL_BLOCKS, b"a chunk"),
    Piece(tier_driver.key(2), 0b0101, b"two of its blocks", name_tenant("a tenant")),
]
ENCRYPTED = [Piece(tier_driver.key(3), ALL_BLOCKS, b"a secret")]


def golden(file=GOLDEN):
    return dict(line.split() for line in file.read_text().splitlines())


@pytest.fixture
def key_file(tmp_path):
    file = tmp_path / "key"
    file.write_text(KEY.hex())
    return str(file)


@pytest.fixture
def no_chance(monkeypatch):
    """The name of the epoch and the nonce are the golden file's."""
    monkeypatch.setattr("octavo.stores.redis.client.token_hex", lambda _: EPOCH)
    monkeypatch.setattr("octavo.stores.mooncake.client.token_hex", lambda _: EPOCH)
    monkeypatch.setattr(os, "urandom", lambda count: bytes(range(count)))


def end_of_job(tier):
    while not (results := tier.poll(0.0)):
        time.sleep(0.001)  # the tier's thread may run
    return results[0].failed


def run(pieces, config, call, **identity):
    """`call` with the tier, and the pieces with buffers for their bytes."""
    context = TierContext(namespace=tier_driver.NAMESPACE, family=FAMILY, max_chunk_bytes=1000, **identity)
    tier = spec_from_config(PATIENT | config).build(context)
    try:
        return call(tier, pieces)
    finally:
        tier.close()


def store(tier, pieces):
    chunks = [
        ChunkBytes(piece.key, [memoryview(bytearray(piece.content))], piece.held_blocks, tenant=piece.tenant)
        for piece in pieces
    ]
    assert tier.submit_store(1, chunks)
    assert end_of_job(tier) == frozenset()


def load(tier, pieces):
    for piece in pieces:
        while tier.ask(SequenceNames(piece.tenant, [ChunkChain(16, [piece.key])])):
            tier.poll(0.0)
            time.sleep(0.001)
    memory = [bytearray(len(piece.content)) for piece in pieces]
    chunks = [
        ChunkBytes(piece.key, [memoryview(m)], piece.held_blocks) for piece, m in zip(pieces, memory, strict=True)
    ]
    assert tier.submit_load(1, chunks)
    assert end_of_job(tier) == frozenset()
    assert memory == [piece.content for piece in pieces]


def run_all(config, key_file, call):
    run(PLAIN, config, call)
    run(ENCRYPTED, config | {"key_file": key_file}, call)


@pytest.fixture
def empty_redis(redis):
    with Redis.from_url(redis["URL"]) as server:
        server.flushdb()
        yield server, {"type": "redis", "url": redis["URL"]}


@pytest.fixture
def pool(run_mooncake, tmp_path):
    with run_mooncake(tmp_path / "pool") as told:
        yield told, {"type": "mooncake", "url": told["URL"]}


@pytest.mark.stores
@pytest.mark.usefixtures("no_chance")
def test_redis_holds_what_it_held(empty_redis, key_file):
    server, config = empty_redis
    run_all(config, key_file, store)
    assert {name.decode(): server.get(name).hex() for name in server.scan_iter()} == golden()


@pytest.mark.stores
def test_what_redis_held_is_read(empty_redis, key_file):
    server, config = empty_redis
    server.mset({name: bytes.fromhex(value) for name, value in golden().items()})
    run_all(config, key_file, load)


@pytest.mark.stores
def test_redis_holds_a_description_by_name_and_byte(empty_redis):
    server, config = empty_redis
    run(PLAIN, config, store, identity=IDENTITY)
    assert {name.decode(): server.get(name).hex() for name in server.scan_iter("octavo:*:names:*")} == golden(DESCRIBED)


@pytest.mark.stores
def test_a_description_that_redis_held_is_read(empty_redis):
    server, config = empty_redis
    server.mset({name: bytes.fromhex(value) for name, value in golden(DESCRIBED).items()})
    keeper = SharedConfig(url=config["url"]).spec.open_keeper()
    with keeper.asking():
        assert keeper.describe(FAMILY.hex(), tier_driver.NAMESPACE.hex()) == IDENTITY


@pytest.mark.stores
@pytest.mark.usefixtures("no_chance")
def test_mooncake_holds_what_redis_holds(pool, key_file):
    told, config = pool
    run_all(config, key_file, store)
    with urlopen(f"{told['METRICS']}/get_all_keys", timeout=300) as answer:
        names = answer.read().decode().split()
    assert through_mooncake(told, names) == golden()


@pytest.mark.stores
def test_what_mooncake_held_is_read(pool, key_file):
    told, config = pool
    assert through_mooncake(told, [" ".join(line) for line in golden().items()]) == golden()
    run_all(config, key_file, load)


def through_mooncake(pool, lines):
    """Puts those that have a value, and reads all."""
    master = pool["URL"].removeprefix("mooncake://")
    done = subprocess.run(
        [sys.executable, "-c", MOONCAKE, master],
        input="\n".join(lines),
        text=True,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    return dict(line.split()[1:] for line in done.stdout.splitlines() if line.startswith("VALUE "))


@pytest.mark.parametrize(("pieces", "key"), [(PLAIN, None), (ENCRYPTED, KEY)], ids=["plain", "encrypted"])
def test_what_servers_held_is_read_without_one(pieces, key):
    envelopes = Envelopes(tier_driver.NAMESPACE, key and RecordCipher(key))
    family, values = f"octavo:{FAMILY.hex()}", golden()
    epoch = values[family]
    for key, held_blocks, content, tenant in pieces:
        folder = f"{family}:{epoch}:{envelopes.namespace.hex()}:{tenant.hex() or 'shared'}"
        envelope = memoryview(bytes.fromhex(values[f"{folder}:{key.hex()}"]))
        assert envelopes.open(envelope, key, held_blocks, len(content)) == content
