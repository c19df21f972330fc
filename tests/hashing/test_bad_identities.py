"""What the hasher refuses: sizes, seeds, identities and hashes that cannot be."""

import pytest

from octavo.errors import InputError
from octavo.hashing import PLAIN, BlockHasher, MultiModalItem, PromptEmbeds, RequestIdentity


class TestErrors:
    def test_unknown_algorithm_lists_the_known(self):
        with pytest.raises(InputError, match=r"'md5': known are sha256_int32, sha256_cbor, xxh3_128"):
            BlockHasher(hash_block_size=16, algorithm="md5")

    @pytest.mark.parametrize("size", [0, -16, 1.5, "16"])
    def test_block_size(self, size):
        with pytest.raises(InputError, match="hash_block_size must be a whole number"):
            BlockHasher(hash_block_size=size)

    def test_seed(self):
        with pytest.raises(InputError, match="seed must be a string, not 42"):
            BlockHasher(hash_block_size=16, seed=42)

    def test_more_hashes_than_tokens(self):
        hasher = BlockHasher(hash_block_size=2)
        with pytest.raises(InputError, match="more hashes than full blocks: 2 given, and 3 tokens fill 1"):
            hasher.extend(hasher.hash_tokens([1, 2, 3, 4], PLAIN), [1, 2, 3], PLAIN)

    def test_hashes_of_another_algorithm(self):
        hashes = BlockHasher(hash_block_size=2, algorithm="xxh3_128").hash_tokens([1, 2], PLAIN)
        with pytest.raises(InputError, match="another algorithm"):
            BlockHasher(hash_block_size=2).extend(hashes, [1, 2, 3, 4], PLAIN)

    @pytest.mark.parametrize(
        "parts",
        [
            {"lora_name": ""},
            {"cache_salt": ""},
            {"cache_salt": b"bytes"},
            {"cache_salt": "\ud800"},
            {"lora_path": "/of/no/name"},
            {"lora_digest": b"of no name"},
            {"lora_name": "a", "lora_digest": b""},
            {"lora_name": "a", "lora_path": b"/x"},
            {"encoder_digest": b""},
            {"encoder_digest": "text"},
            {"multimodal": tuple(MultiModalItem(identifier="a", offset=at, length=1) for at in (5, 4))},
        ],
    )
    def test_identity(self, parts):
        with pytest.raises(InputError, match="RequestIdentity: "):
            RequestIdentity(**parts)

    @pytest.mark.parametrize(
        "change", [{"identifier": ""}, {"identifier": None}, {"offset": -1}, {"length": 0}, {"length": 1.0}]
    )
    def test_item(self, change):
        with pytest.raises(InputError, match=f"MultiModalItem: {next(iter(change))} "):
            MultiModalItem(**{"identifier": "a", "offset": 0, "length": 1} | change)

    @pytest.mark.parametrize("parts", [(b"", 1), (b"abc", 2), (b"ab", 0), ("ab", 1)])
    def test_prompt_embeds(self, parts):
        with pytest.raises(InputError, match="PromptEmbeds: "):
            PromptEmbeds(data=parts[0], bytes_per_token=parts[1])
