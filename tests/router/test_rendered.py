"""The answers of vLLM's `.../render`: a prompt's tokens, and its images by digest and place."""

import json

import pytest

from octavo.errors import MALFORMED, InputError
from octavo.hashing import MultiModalItem
from octavo.router.rendered import read_rendered, render_path, to_render

PROMPT = {"request_id": "chatcmpl-1", "token_ids": [10, 4, 4, 9, 4, 4, 11], "sampling_params": {"temperature": 0.0}}


def answer(hashes, places):
    places = {kind: [{"offset": at, "length": length} for at, length in of_kind] for kind, of_kind in places.items()}
    features = {"mm_hashes": hashes, "mm_placeholders": places, "kwargs_data": None}
    return json.dumps({**PROMPT, "features": features}).encode()


def test_items_of_all_kinds_are_in_the_order_of_the_prompt():
    read = read_rendered(answer({"image": ["i"], "audio": ["a"]}, {"image": [(4, 2)], "audio": [(1, 2)]}))
    assert read.tokens == PROMPT["token_ids"]
    sound, image = (MultiModalItem(identifier=name, offset=at, length=2) for name, at in (("a", 1), ("i", 4)))
    assert read.items == (sound, image)


@pytest.mark.parametrize("told", [{**PROMPT, "features": None}, [PROMPT, {"token_ids": [1]}]])
def test_text_has_no_items_and_the_first_of_several_prompts_counts(told):
    read = read_rendered(json.dumps(told).encode())
    assert (read.tokens, read.items) == (PROMPT["token_ids"], ())


@pytest.mark.parametrize(
    "told",
    [
        b"{}",
        b"[]",
        b'{"token_ids": [1.5]}',
        answer({"image": ["i", "j"]}, {"image": [(1, 2)]}),
        answer({"image": ["i"]}, {"audio": [(1, 2)]}),
        answer({"image": ["i"]}, {"image": [(1, 0)]}),
        answer({"image": [""]}, {"image": [(1, 2)]}),
    ],
)
def test_answers_without_a_prompt_are_refused(told):
    with pytest.raises((*MALFORMED, InputError)):
        read_rendered(told)


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        ({"messages": []}, "/v1/chat/completions/render"),
        ({"input": "x"}, "/v1/responses/render"),
        ({"prompt": "x"}, "/v1/completions/render"),
    ],
)
def test_a_request_is_rendered_as_it_is_without_tensors(request_, path):
    assert render_path(request_) == path
    asked = json.loads(to_render({**request_, "use_beam_search": True, "tool_choice": "none"}))
    assert asked == {**request_, "tool_choice": "none", "mm_payload": "none", "use_beam_search": False}
