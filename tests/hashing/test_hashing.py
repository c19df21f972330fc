import hashlib
import os
import random
from dataclasses import replace

import cbor2
import numpy as np
import pytest
import xxhash
from hypothesis import given, strategies as st

import octavo.hashing
from octavo.errors import BlockSizeError, InputError
from octavo.hashing import (
    DEFAULT_ALGORITHM,
    DEFAULT_SEED,
    HASH_ALGORITHMS,
    PLAIN,
    BlockHasher,
    MultiModalItem,
    PromptEmbeds,
    RequestIdentity,
    hashes_for_block_size,
)
from octavo.hashing.cbor_tokens import cbor_of_block, cbor_of_blocks

EDGES = [0, 1, 23, 24, 255, 256, 65535, 65536, 2**31 - 1]  # where CBOR's width changes
TOKENS = [0, 23, 24, 255, 256, 65535, 65536, 2**31 - 1, 7, 8, 9, 10]
TUNED_CAT = RequestIdentity(
    lora_name="tuned",
    lora_path="/loras/tuned",
    cache_salt="tenant-1",
    multimodal=(MultiModalItem(identifier="cat", offset=6, length=5),),
)

# (algorithm, seed): the root, the last of three hashes of TOKENS, the same with TUNED_CAT.
# Those of sha256_cbor are from vLLM 0.32 itself.
GOLDEN = {
    ("sha256_int32", None): (
        "4d0829354cb75e5c258ee87c9bfb7602ea11e88f3c93eb4339a857bfb92542c6",
        "3fc2512676f68902ba20cb2507fde2a49fbe79e548ba4ec1c553f1bad843e889",
        "6d3548aa7af2b995674e0afd07633c13c1b494eb235c86f5d78f5bbaede24a4f",
    ),
    ("sha256_int32", "42"): (
        "1cb18de3de24e2be387d8c201a371040dec37d1b94b22e3e388080e224613e86",
        "215869fe315a96b42fa570836d2465949bc034de4dbe57fb37f8c5fbd6ebadab",
        "4828503fb088437ec9b84cc49492243b3af3ee0e0df7ddf871ed5adf7be4ba1d",
    ),
    ("sha256_cbor", None): (
        "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0",
        "f553e49eb687829c3dfe1612d77bb28ce8b59d4d561ef2109f8a3b1642cc044f",
        "e466679a00b5a7986ae9acbf276468b4eff674a104b26db6e0b1ae3ec9dc39d1",
    ),
    ("sha256_cbor", "42"): (
        "9fa6eb003f14425eb9c8e6baacfbcaab26257357b829c7bfa74ffcc4f31c1780",
        "57e9822d2cc1ee01644553400cd2e55903f165b30cd2004c86549d40daf47e6c",
        "1ed7d9ed1987fdf0409999edf67b175865f77f61d75ba3e524f954285148ca25",
    ),
    ("xxh3_128", None): (
        "cc896b7642a845f33b28b7e688526b6d",
        "fdcf0e29a15a7096b12c082afc3c4516",
        "c8b7632353b6a9e32de567eb26700316",
    ),
    ("xxh3_128", "42"): (
        "4db12977f14919149489ddc85e5cbad9",
        "fa582187bba3c36f0b3c3e516c5909bf",
        "b9346396029ebc92a65c9d5e9ce0452e",
    ),
}

algorithms = st.sampled_from(sorted(HASH_ALGORITHMS))
seeds = st.sampled_from([None, "", "42"])
token_lists = st.lists(st.sampled_from(EDGES) | st.integers(0, 2**31 - 1), max_size=70)
words = st.text(alphabet="ab\0", min_size=1, max_size=3)
digests = st.binary(min_size=1, max_size=3)


@st.composite
def identities(draw, max_tokens=12):
    """Identities whose parts look alike. An item's name tells its length, so that it tells its embeddings."""
    offsets = sorted(draw(st.lists(st.integers(0, max_tokens - 1), max_size=3)))
    names = draw(st.lists(words, min_size=len(offsets), max_size=len(offsets)))
    items = zip(names, offsets, strict=True)
    lora = draw(st.none() | words)
    rows = draw(st.none() | st.binary(min_size=1, max_size=max_tokens))
    return RequestIdentity(
        lora_name=lora,
        lora_path="" if lora is None else draw(st.just("") | words),
        lora_digest=None if lora is None else draw(st.none() | digests),
        cache_salt=draw(st.none() | words),
        multimodal=tuple(MultiModalItem(identifier=name, offset=at, length=2 * len(name)) for name, at in items),
        prompt_embeds=None if rows is None else PromptEmbeds(data=rows, bytes_per_token=1),
        encoder_digest=draw(st.none() | digests),
    )


def naive_extra_keys(identity, start, end):
    """vLLM's rule, and Octavo's two additions, one block at a time."""
    keys = []
    if identity.lora_name is not None:
        keys.append(("lora", identity.lora_name, identity.lora_path))
        if identity.lora_digest is not None:
            keys.append(("lora_digest", identity.lora_digest))
    for item in identity.multimodal:
        if item.offset < end and item.end > start:
            keys.append(("mm", item.identifier, item.offset - start))  # noqa: PERF401
    if start == 0 and identity.cache_salt is not None:
        keys.append(("cache_salt", identity.cache_salt))
    if (embeds := identity.prompt_embeds) is not None:
        rows = embeds.data[start * embeds.bytes_per_token : end * embeds.bytes_per_token]
        keys.append(("prompt_embeds", hashlib.sha256(rows).digest()))
    if start == 0 and identity.encoder_digest is not None:
        keys.append(("encoder", identity.encoder_digest))
    return tuple(keys) or None


def naive_hashes(algorithm, block_size, seed, tokens, identity):
    """The definition, one block at a time."""
    seed = DEFAULT_SEED if seed is None else seed
    origin = seed if algorithm == "sha256_cbor" else ("octavo-block-hash-1", algorithm, block_size, seed)
    parent = hashlib.sha256(cbor2.dumps(origin)).digest()
    parent = parent[:16] if algorithm == "xxh3_128" else parent
    hashes = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        block = tuple(tokens[start : start + block_size])
        keys = naive_extra_keys(identity, start, start + block_size)
        if algorithm == "sha256_cbor":
            message = cbor2.dumps((parent, block, keys), canonical=True)
        else:
            in_binary = b"".join(token.to_bytes(4, "little") for token in block)
            message = parent + in_binary + (cbor2.dumps(keys, canonical=True) if keys else b"")
        digest = xxhash.xxh3_128_digest if algorithm == "xxh3_128" else lambda m: hashlib.sha256(m).digest()
        parent = digest(message)
        hashes.append(parent)
    return hashes


def first_difference(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)


class TestValues:
    @pytest.mark.parametrize(("algorithm", "seed"), GOLDEN)
    def test_golden(self, algorithm, seed):
        hasher = BlockHasher(hash_block_size=4, algorithm=algorithm, seed=seed)
        last = [hasher.hash_tokens(TOKENS, identity)[-1].hex() for identity in (PLAIN, TUNED_CAT)]
        assert (hasher.root.hex(), *last) == GOLDEN[algorithm, seed]

    def test_every_algorithm_has_golden_values(self):
        assert {algorithm for algorithm, _ in GOLDEN} == set(HASH_ALGORITHMS)

    @given(algorithms, st.integers(1, 9), seeds, token_lists, identities(max_tokens=60))
    def test_are_those_of_the_definition(self, algorithm, block_size, seed, tokens, identity):
        hasher = BlockHasher(hash_block_size=block_size, algorithm=algorithm, seed=seed)
        assert hasher.hash_tokens(tokens, identity) == naive_hashes(algorithm, block_size, seed, tokens, identity)

    @pytest.mark.parametrize("block_size", [1, 16, 23, 24, 256, 1024])
    @pytest.mark.parametrize("algorithm", HASH_ALGORITHMS)
    def test_any_block_size(self, algorithm, block_size):
        tokens = random.Random(0).choices(EDGES, k=block_size * 9)
        hasher = BlockHasher(hash_block_size=block_size, algorithm=algorithm)
        assert hasher.hash_tokens(tokens, PLAIN) == naive_hashes(algorithm, block_size, None, tokens, PLAIN)

    @pytest.mark.parametrize("algorithm", HASH_ALGORITHMS)
    def test_digest_size(self, algorithm):
        hasher = BlockHasher(hash_block_size=1, algorithm=algorithm)
        assert {len(h) for h in [hasher.root, *hasher.hash_tokens([1, 2], PLAIN)]} == {hasher.digest_size_bytes}

    def test_defaults(self):
        hasher = BlockHasher(hash_block_size=16)
        assert (
            (hasher.algorithm, hasher.seed) == (DEFAULT_ALGORITHM, DEFAULT_SEED) == ("sha256_int32", "vllm-none-hash")
        )

    def test_the_environment_takes_no_part(self, monkeypatch):
        before = BlockHasher(hash_block_size=16).root
        monkeypatch.setitem(os.environ, "PYTHONHASHSEED", "7")
        assert BlockHasher(hash_block_size=16).root == before

    @given(st.lists(st.sampled_from(EDGES) | st.integers(0, 2**31 - 1), min_size=1), st.integers(1, 5))
    def test_both_cbor_encoders_are_cbor(self, block, num_blocks):
        expected = b"".join(cbor2.dumps(token) for token in block)
        encoded, ends = cbor_of_blocks(np.array([block] * num_blocks, dtype=np.int32))
        assert cbor_of_block(tuple(block)) == expected
        assert (encoded, ends) == (expected * num_blocks, [len(expected) * (k + 1) for k in range(num_blocks)])


class TestChain:
    @given(algorithms, st.integers(1, 5), token_lists, identities(max_tokens=60), st.data())
    def test_in_steps_equals_at_once(self, algorithm, block_size, tokens, identity, data):
        hasher = BlockHasher(hash_block_size=block_size, algorithm=algorithm)
        array = np.array(tokens, dtype=np.int32)
        hashes = []
        for end in sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=5))):
            hasher.extend(hashes, array[:end], identity)
            assert hashes == hasher.hash_tokens(tokens, identity)[: end // block_size]

    @pytest.mark.parametrize("num_blocks", [512, 513, 1024, 1300])
    @pytest.mark.parametrize("lookahead_tokens", [0, 2])
    def test_a_long_prompt_in_steps_equals_at_once(self, num_blocks, lookahead_tokens):
        """Runs of 512 blocks, and an image over the boundary of two of them."""
        image = MultiModalItem(identifier="image", offset=8100, length=200)
        identity = RequestIdentity(cache_salt="salt", multimodal=(image,))
        hasher = BlockHasher(hash_block_size=16, algorithm="sha256_cbor", lookahead_tokens=lookahead_tokens)
        tokens = list(range(num_blocks * 16 + lookahead_tokens))
        hashes = []
        for end in range(0, num_blocks + 100, 100):
            hasher.extend(hashes, tokens[: end * 16 + lookahead_tokens], identity)
        assert hashes == hasher.hash_tokens(tokens, identity)
        assert len(set(hashes)) == num_blocks

    @given(algorithms, st.integers(1, 5), token_lists.filter(bool), identities(max_tokens=60), st.data())
    def test_a_token_changes_its_block_and_all_later_ones(self, algorithm, block_size, tokens, identity, data):
        hasher = BlockHasher(hash_block_size=block_size, algorithm=algorithm)
        at = data.draw(st.integers(0, len(tokens) - 1))
        other = [
            *tokens[:at],
            data.draw(st.integers(0, 2**31 - 1).filter(lambda t: t != tokens[at])),
            *tokens[at + 1 :],
        ]
        a, b = (hasher.hash_tokens(t, identity) for t in (tokens, other))
        first = at // block_size
        assert a[:first] == b[:first]
        assert not set(a[first:]) & set(b[first:])

    @given(algorithms, identities(), identities())
    def test_identities_differ_from_the_first_block_they_touch_on(self, algorithm, one, other):
        hasher = BlockHasher(hash_block_size=4, algorithm=algorithm)
        tokens = [0] * 12
        a, b = (hasher.hash_tokens(tokens, identity) for identity in (one, other))
        blocks = range(3)
        first = first_difference(one.extra_keys_of_blocks(blocks, 4), other.extra_keys_of_blocks(blocks, 4))
        assert (first is None) == (one == other)
        first = 3 if first is None else first
        assert a[:first] == b[:first]
        assert not set(a[first:]) & set(b[first:])

    @given(algorithms, identities(), st.data())
    def test_each_part_takes_part(self, algorithm, identity, data):
        hasher = BlockHasher(hash_block_size=4, algorithm=algorithm)
        part, first = data.draw(
            st.sampled_from(
                [
                    ({"lora_name": "other", "lora_path": identity.lora_path}, 0),
                    ({"lora_name": identity.lora_name or "a", "lora_path": "other"}, 0),
                    ({"lora_name": identity.lora_name or "a", "lora_digest": b"other"}, 0),
                    ({"cache_salt": "other"}, 0),
                    ({"encoder_digest": b"other"}, 0),
                    ({"multimodal": (MultiModalItem(identifier="other", offset=5, length=1),)}, None),
                    ({"prompt_embeds": PromptEmbeds(data=b"\xff" * 13, bytes_per_token=1)}, 0),
                ]
            )
        )
        a, b = (hasher.hash_tokens([0] * 12, i) for i in (identity, replace(identity, **part)))
        assert a[-1] != b[-1]
        if first is not None:
            assert not set(a) & set(b)

    def test_a_late_image_leaves_the_blocks_before_it(self):
        hasher = BlockHasher(hash_block_size=4)
        plain = hasher.hash_tokens([0] * 16, PLAIN)
        late = hasher.hash_tokens(
            [0] * 16, RequestIdentity(multimodal=(MultiModalItem(identifier="cat", offset=8, length=4),))
        )
        assert first_difference(plain, late) == 2

    def test_chains_of_other_hashers_are_disjoint(self):
        hashers = [
            BlockHasher(hash_block_size=size, algorithm=algorithm, seed=seed)
            for algorithm in HASH_ALGORITHMS
            for size in (4, 8, 16)
            for seed in (None, "", "0", "1")
        ]
        hashes = [h for hasher in hashers for h in hasher.hash_tokens([0] * 64, PLAIN)]
        assert len(set(hashes)) == len(hashes) == 3 * 4 * (16 + 8 + 4)


class TestExtraKeys:
    def test_the_same_letters_from_other_sources(self):
        alike = [
            PLAIN,
            RequestIdentity(cache_salt="ab"),
            RequestIdentity(lora_name="ab"),
            RequestIdentity(lora_name="a", lora_path="b"),
            RequestIdentity(lora_name="a", cache_salt="b"),
            RequestIdentity(lora_name="b", cache_salt="a"),
            RequestIdentity(lora_name="a", lora_digest=b"b"),
            RequestIdentity(lora_name="ab", encoder_digest=b"ab"),
            RequestIdentity(encoder_digest=b"ab"),
            RequestIdentity(multimodal=(MultiModalItem(identifier="ab", offset=0, length=4),)),
            RequestIdentity(multimodal=(MultiModalItem(identifier="cache_salt", offset=0, length=4),)),
            RequestIdentity(multimodal=(MultiModalItem(identifier="ab", offset=1, length=3),)),
            RequestIdentity(prompt_embeds=PromptEmbeds(data=b"ab", bytes_per_token=1)),
        ]
        for algorithm in HASH_ALGORITHMS:
            hasher = BlockHasher(hash_block_size=4, algorithm=algorithm)
            assert len({hasher.hash_tokens([0] * 4, identity)[0] for identity in alike}) == len(alike)

    @pytest.mark.parametrize("algorithm", ["sha256_int32", "xxh3_128"])
    def test_tokens_cannot_pose_as_extra_keys(self, algorithm):
        salted = RequestIdentity(cache_salt="ab")
        hasher = BlockHasher(hash_block_size=4, algorithm=algorithm)
        (message,) = hasher._messages(range(1), [0] * 4, salted)
        posing = np.frombuffer(message, dtype="<i4")
        other = BlockHasher(hash_block_size=len(posing), algorithm=algorithm)
        assert other._messages(range(1), posing, PLAIN) == [message]  # only the root is in the way
        assert other.hash_tokens(posing, PLAIN) != hasher.hash_tokens([0] * 4, salted)

    @given(identities(max_tokens=40), st.integers(1, 8), st.integers(0, 5), st.integers(0, 6))
    def test_are_those_of_the_rule(self, identity, block_size, first, count):
        blocks = range(first, first + count)
        assert identity.extra_keys_of_blocks(blocks, block_size) == [
            naive_extra_keys(identity, k * block_size, (k + 1) * block_size) or () for k in blocks
        ]

    def test_an_image_over_three_blocks(self):
        identity = RequestIdentity(
            lora_name="tuned", cache_salt="s", multimodal=(MultiModalItem(identifier="cat", offset=3, length=6),)
        )
        lora = ("lora", "tuned", "")
        assert identity.extra_keys_of_blocks(range(4), 4) == [
            (lora, ("mm", "cat", 3), ("cache_salt", "s")),
            (lora, ("mm", "cat", -1)),
            (lora, ("mm", "cat", -5)),
            (lora,),
        ]

    def test_items_that_overlap_all_count(self):
        film = (
            MultiModalItem(identifier="pictures", offset=0, length=8),
            MultiModalItem(identifier="sound", offset=0, length=8),
        )
        expected = [(("mm", "pictures", at), ("mm", "sound", at)) for at in (0, -4)]
        assert RequestIdentity(multimodal=film).extra_keys_of_blocks(range(2), 4) == expected


class TestTokens:
    @pytest.mark.parametrize("algorithm", HASH_ALGORITHMS)
    @pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64, ">i4"])
    def test_arrays_and_lists_are_the_same(self, algorithm, dtype):
        hasher = BlockHasher(hash_block_size=4, algorithm=algorithm)
        expected = hasher.hash_tokens(TOKENS, PLAIN)
        array = np.array(TOKENS, dtype=dtype)
        assert hasher.hash_tokens(array, PLAIN) == expected
        assert hasher.hash_tokens(np.repeat(array, 2)[::2], PLAIN) == expected
        assert hasher.hash_tokens(tuple(TOKENS), PLAIN) == expected

    def test_bytes_are_numbers_not_memory(self):
        hasher = BlockHasher(hash_block_size=4)
        assert hasher.hash_tokens(bytes([1, 2, 3, 4]), PLAIN) == hasher.hash_tokens([1, 2, 3, 4], PLAIN)

    @pytest.mark.parametrize("bad", [-1, -(2**31), 2**31, 2**32 + 5, -(2**63), 2**63 - 1])
    def test_outside_int32(self, bad):
        hasher = BlockHasher(hash_block_size=2)
        hashes = hasher.hash_tokens([7, 7], PLAIN)
        before = hashes.copy()
        for tokens in ([7, 7, 7, bad], np.array([7, 7, 7, bad], dtype=np.int64)):
            with pytest.raises(InputError, match=rf"token {bad} at position 3 is outside"):
                hasher.extend(hashes, tokens, PLAIN)
        assert hashes == before

    def test_a_negative_int32(self):
        with pytest.raises(InputError, match="token -5 at position 1 "):
            BlockHasher(hash_block_size=2).hash_tokens(np.array([1, -5], dtype=np.int32), PLAIN)

    @pytest.mark.parametrize(
        "tokens",
        [[1.5, 2.0], ["a", "b"], "ab", np.array([1.0, 2.0]), np.zeros((2, 2), dtype=np.int32), np.array([True] * 2)],
    )
    def test_not_whole_numbers(self, tokens):
        with pytest.raises(InputError, match="tokens must be"):
            BlockHasher(hash_block_size=2).hash_tokens(tokens, PLAIN)

    def test_no_full_block(self):
        assert BlockHasher(hash_block_size=4).hash_tokens([1, 2, 3], TUNED_CAT) == []


class TestLargerBlocks:
    @given(st.integers(1, 5), st.integers(1, 4), token_lists)
    def test_take_the_hash_at_their_end(self, hash_block_size, ratio, tokens):
        hashes = BlockHasher(hash_block_size=hash_block_size).hash_tokens(tokens, PLAIN)
        block_size = hash_block_size * ratio
        larger = hashes_for_block_size(hashes, hash_block_size, block_size)
        assert larger == [hashes[end // hash_block_size - 1] for end in range(block_size, len(tokens) + 1, block_size)]

    @pytest.mark.parametrize("sizes", [(16, 24), (16, 8), (16, 0), (0, 16), (-4, 8)])
    def test_must_be_multiples(self, sizes):
        with pytest.raises(BlockSizeError, match="not a multiple"):
            hashes_for_block_size([], *sizes)


def test_all_names_exist():
    assert sorted(octavo.hashing.__all__) == sorted(n for n in octavo.hashing.__all__ if hasattr(octavo.hashing, n))
