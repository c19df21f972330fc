"""Two prompts are compared without their tokens: the first block that differs, and what differs in it."""

import numpy as np
import pytest

from octavo.hashing import PLAIN, MultiModalItem, PromptEmbeds, RequestIdentity
from octavo.why import FingerprintMaker, compare

SIZE = 4
TOKENS = list(range(100, 140))
MAKER = FingerprintMaker(SIZE)


def difference(tokens=TOKENS, identity=PLAIN, *, of=TOKENS, other=PLAIN):
    found = compare(MAKER.of(tokens, identity), MAKER.of(of, other), SIZE)
    return None if found is None else (found.block, found.parts, found.num_equal_blocks)


def image(name, offset):
    return MultiModalItem(identifier=name, offset=offset, length=6)


def test_equal_prompts_do_not_differ():
    assert difference() is None
    assert difference(np.array(TOKENS, dtype=np.int32)) is None
    assert difference(TOKENS[:17]) is None  # as far as both go


def test_one_token():
    changed = [*TOKENS]
    changed[22] += 1
    assert difference(changed) == (5, ("tokens",), 9)


@pytest.mark.parametrize(
    ("identity", "name"),
    [
        (RequestIdentity(cache_salt="a"), "cache_salt"),
        (RequestIdentity(lora_name="a"), "lora"),
        (RequestIdentity(encoder_digest=b"a"), "encoder"),
        (RequestIdentity(prompt_embeds=PromptEmbeds(data=b"aaaa", bytes_per_token=4)), "prompt_embeds"),
    ],
)
def test_a_part_of_the_identity(identity, name):
    assert difference(identity=identity) == (0, (name,), 10)
    assert difference(identity=identity, other=identity) is None


def test_an_image():
    one, two = RequestIdentity(multimodal=(image("cat", 9),)), RequestIdentity(multimodal=(image("dog", 9),))
    assert difference(identity=one, other=two) == (2, ("image",), 10)
    assert difference(identity=one, other=one) is None


def test_several_things_at_once():
    assert difference([0, *TOKENS[1:]], RequestIdentity(cache_salt="a")) == (0, ("cache_salt", "tokens"), 9)


def test_no_text_is_kept():
    fingerprint = MAKER.of(TOKENS, RequestIdentity(cache_salt="a secret"))
    assert "secret" not in repr(fingerprint)
    assert not set(fingerprint.blocks.tolist()) & set(TOKENS)
    assert fingerprint.blocks.tolist() != FingerprintMaker(SIZE).of(TOKENS, PLAIN).blocks.tolist()
