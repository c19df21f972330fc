"""Text arrives piece by piece, whole, and is cut where a stop string begins."""

import random

import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE

from octavo.engine.detokenizer import Detokenizer
from octavo.engine.stop_strings import StopStrings

TEXT = "Grüße aus Köln! 你好,世界 🎉🎊 naïve café — done. Ça va? " * 3
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


def byte_level():
    """A byte-level tokenizer, most of whose tokens are single bytes."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=290, initial_alphabet=alphabet, special_tokens=["<s>"], show_progress=False
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


def byte_fallback():
    """A tokenizer in SentencePiece's manner: spaces as marks, the first one dropped, unknown characters as bytes."""
    words = ["<unk>", "<s>", *(f"<0x{i:02X}>" for i in range(256)), *"abcdefghijklmnopqrstuvwxyz.!?▁"]
    tokenizer = Tokenizer(BPE({word: i for i, word in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


TOKENIZERS = {"byte level": byte_level(), "byte fallback": byte_fallback()}


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]


def pieces_of(tokenizer, ids, **options):
    detokenizer = Detokenizer(tokenizer, **options)
    return [*(detokenizer.push(token) for token in ids), detokenizer.flush()]


def test_the_pieces_are_the_text(tokenizer):
    ids = tokenizer.encode(TEXT).ids
    pieces = pieces_of(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids)
    assert not any(INCOMPLETE in piece for piece in pieces)
    assert sum(bool(piece) for piece in pieces) > 50, "it comes in pieces"


@given(text=st.text(alphabet="ab é€😀字 .\n", max_size=60), name=st.sampled_from(sorted(TOKENIZERS)))
def test_any_text_comes_whole(text, name):
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text).ids
    pieces = pieces_of(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids)
    assert not any(INCOMPLETE in piece for piece in pieces)


def test_bytes_that_make_no_character_do_not_hold_up_the_rest():
    tokenizer = TOKENIZERS["byte level"]
    lone = tokenizer.token_to_id("Ģ")  # one byte of a character
    after = tokenizer.encode("after").ids
    pieces = pieces_of(tokenizer, [lone] * 200 + after)
    assert "".join(pieces).endswith("after")
    assert "".join(pieces) == tokenizer.decode([lone] * 200 + after)
    assert "".join(pieces[:100])


@given(text=st.text(alphabet="ab é€😀字 .\n", max_size=60), name=st.sampled_from(sorted(TOKENIZERS)))
def test_a_text_that_goes_on_from_another(text, name):
    tokenizer = TOKENIZERS[name]
    before = tokenizer.encode("a").ids
    ids = tokenizer.encode(f" {text}").ids
    pieces = pieces_of(tokenizer, ids, before=before)
    assert "a" + "".join(pieces) == tokenizer.decode([*before, *ids])
    assert "".join(pieces).startswith(" ")


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_text_that_goes_on_from_half_a_character(name):
    """What would complete the character is a replacement character, and nothing behind it is lost."""
    tokenizer = TOKENIZERS[name]
    for char in "ß€😀":
        half, rest = tokenizer.encode(f"x{char}").ids[:-1], tokenizer.encode(f"x{char}").ids[-1:]
        if not tokenizer.decode(half).endswith(INCOMPLETE):
            continue  # the character is one token
        pieces = pieces_of(tokenizer, [*rest, *tokenizer.encode("yz").ids[-2:]], before=half)
        assert "".join(pieces) == INCOMPLETE + "yz"


def test_half_a_character_at_the_end_is_told_as_it_is():
    tokenizer = TOKENIZERS["byte level"]
    ids = tokenizer.encode("x字").ids
    pieces = pieces_of(tokenizer, ids[:-1])
    assert pieces[-1].startswith(INCOMPLETE)
    assert "".join(pieces) == tokenizer.decode(ids[:-1])


def test_special_tokens_are_left_out_or_not():
    tokenizer = TOKENIZERS["byte level"]
    ids = [tokenizer.token_to_id("<s>"), *tokenizer.encode("ab").ids]
    assert "".join(pieces_of(tokenizer, ids)) == "ab"
    assert "".join(pieces_of(tokenizer, ids, skip_special_tokens=False)) == "<s>ab"


@pytest.mark.parametrize("stop", ["世界", "naïve", "🎊 n", "done. Ç"])
def test_a_stop_string_across_tokens_ends_the_text_before_it(tokenizer, stop):
    detokenizer = Detokenizer(tokenizer, stop=(stop, "never"))
    ids = tokenizer.encode(TEXT).ids
    text, emitted = tokenizer.decode(ids), ""
    expected = text[: text.index(stop)]
    for token in ids:
        emitted += detokenizer.push(token)
        assert expected.startswith(emitted)
        if detokenizer.stop_string is not None:
            break
    assert detokenizer.stop_string == stop
    assert emitted == expected
    assert detokenizer.flush() == ""


def test_what_only_looked_like_a_stop_string_comes_in_the_end():
    tokenizer = TOKENIZERS["byte fallback"]
    ids = tokenizer.encode("a stop").ids
    pieces = pieces_of(tokenizer, ids, stop=("stopped",))
    assert "".join(pieces[:-1]) == "a "
    assert pieces[-1] == "stop"


def test_stop_strings_count_from_min_tokens_on():
    tokenizer = TOKENIZERS["byte fallback"]
    ids = tokenizer.encode("xabxab").ids
    detokenizer = Detokenizer(tokenizer, stop=("ab",), min_tokens=len(ids) - 1)
    assert "".join(detokenizer.push(token) for token in ids) == "xabx"
    assert detokenizer.stop_string == "ab"


@given(
    text=st.text(alphabet="abc", max_size=30),
    stops=st.lists(st.text(alphabet="abc", min_size=1, max_size=4), min_size=1, max_size=3),
    seed=st.integers(0, 99),
)
def test_where_the_pieces_are_cut_does_not_matter(text, stops, seed):
    min_end = first_match(text, stops)
    expected = text if min_end is None else text[:min_end]
    cutter, finder, emitted, rest = random.Random(seed), StopStrings(stops), "", text
    while rest and finder.found is None:
        size = cutter.randint(1, 3)
        emitted += finder.push(rest[:size])
        assert expected.startswith(emitted)
        rest = rest[size:]
    assert emitted + finder.flush() == expected
    assert (finder.found is None) == (min_end is None)


def first_match(text, stops):
    """Where the match begins that is complete first, as one reads; the longest of several."""
    for end in range(len(text) + 1):
        begins = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if begins:
            return min(begins)
    return None
