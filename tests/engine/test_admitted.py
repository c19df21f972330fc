"""Families that a comparison has admitted: the data that ships is whole, and some of it is compared again.

All of it is by `make families FAMILIES=--again`, which takes minutes: after another transformers, say.
"""

import pytest
from admission import compare

from octavo.engine.admitted import COMPARISON
from octavo.engine.hf_classes import type_of_loaded
from octavo.engine.models.compared import check_compared
from octavo.engine.models.families import NAMED, REFUSED, check_family, served_types
from octavo.engine.tiny_models import tiny_config
from octavo.errors import UnsupportedModelError

AGAIN = ["deepseek_v32", "glm4_moe", "lfm3", "mimo_v2_flash", "minicpm3", "minicpmv4_6", "mistral", "mistral_large4", "mixtral", "olmo2", "phi3", "qwen2", "qwen3_moe", "qwen3_vl", "smollm3"]  # fmt: skip  # noqa: E501
"""Those that many use, and one of each set of kinds of layers."""


@pytest.mark.parametrize("name", AGAIN)
def test_the_engine_answers_as_plain_hugging_face(name, tmp_path):
    compare(name, tmp_path)


@pytest.mark.parametrize("name", COMPARISON.served)
def test_a_config_like_one_that_was_compared_is_taken(name):
    family = COMPARISON.served[name]
    for override in ({}, *family.also):
        config = tiny_config(name, **override)
        assert type_of_loaded(config) == name
        check_compared(name, config.get_text_config(decoder=True))
    assert check_family(name, name)
    check_compared(name, tiny_config(name, vocab_size=1000, max_position_embeddings=8192).get_text_config(decoder=True))


def test_what_differs_in_two_ways_is_refused():
    """Each of a family's configs was compared as a whole."""
    config = tiny_config("stablelm", use_qkv_bias=True, qk_layernorm=True)
    with pytest.raises(UnsupportedModelError, match="use_qkv_bias = True has not been compared"):
        check_compared("stablelm", config)


def test_every_family_is_in_one_list():
    lists = [set(NAMED), set(REFUSED), set(COMPARISON.served), set(COMPARISON.refused)]
    assert sum(map(len, lists)) == len(set.union(*lists))
    assert {*NAMED, *COMPARISON.served} == set(served_types())


def test_the_reason_of_a_refusal_is_told():
    with pytest.raises(UnsupportedModelError, match="bloom does not answer as in plain Hugging Face"):
        check_family("bloom", "bloom")
