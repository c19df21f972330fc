"""`ShardedDict` is a dictionary."""

from hashlib import blake2b
from sys import getsizeof

from octavo.tables import ShardedDict


def digest_of(number):
    return blake2b(number.to_bytes(8, "big"), digest_size=20).digest()


def test_is_a_dictionary_of_digests():
    table = ShardedDict(-1)
    keys = [digest_of(number) for number in range(300)]
    for number, key in enumerate(keys):
        table[key] = number
    assert len(table) == 300
    assert sorted(table) == sorted(keys) == sorted(key for part in table.shards for key in part)
    assert dict(table.items()) == {key: number for number, key in enumerate(keys)}
    assert table.find([keys[7], digest_of(999)]) == [7, -1]
    assert table.pop_all([keys[7], digest_of(999)]) == [7, -1]
    assert table.get(keys[7]) == table.pop(keys[7]) == -1
    assert keys[7] not in table
    assert keys[8] in table
    assert table.pop(keys[8]) == 8


def test_grows_by_a_small_part_in_one_call():
    """A part that grows moves all its keys: never many of those that are there while a batch comes."""
    table = ShardedDict(0)
    digests = [digest_of(number) for number in range(100_000)]
    for start in range(0, len(digests), 256):
        before = [(getsizeof(part), len(part)) for part in table.shards]
        for digest in digests[start : start + 256]:
            table[digest] = 1
        moved = sum(
            num_keys
            for part, (num_bytes, num_keys) in zip(table.shards, before, strict=True)
            if getsizeof(part) > num_bytes
        )
        assert moved <= 0.07 * max(start, 20_000)
