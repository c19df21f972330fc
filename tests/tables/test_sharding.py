"""`ShardedDict` is a dictionary."""

from hashlib import blake2b

from octavo.tables import ShardedDict


def digest_of(number):
    return blake2b(number.to_bytes(8, "big"), digest_size=20).digest()


def test_is_a_dictionary_of_digests():
    table = ShardedDict(-1)
    keys = [digest_of(number) for number in range(300)]
    for number, key in enumerate(keys):
        table[key] = number
    assert len(table) == 300
    assert sorted(table) == sorted(keys) == sorted(key for part in table.parts() for key in part)
    assert dict(table.items()) == {key: number for number, key in enumerate(keys)}
    assert table.find([keys[7], digest_of(999)]) == [7, -1]
    assert table.pop_all([keys[7], digest_of(999)]) == [7, -1]
    assert table.get(keys[7]) == table.pop(keys[7]) == -1
    assert keys[7] not in table
    assert keys[8] in table
    assert table.pop(keys[8]) == 8


def test_parts_are_small_and_of_several_sizes():
    """No two neighbours grow in the same call."""
    table = ShardedDict(0)
    sizes = {sum(shard is part for shard in table.shards) for part in table.parts()}
    assert {3, 4, 5} <= sizes
    assert max(sizes) == 5
