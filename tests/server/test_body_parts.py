"""A body that is all lists, objects and names is refused before it is decoded: by who has an engine, and by routers."""

import json

import pytest

from octavo.http import ApiError, check_parts
from rigs.running_router import RunningRouter

MOST = 1 << 19
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("part", [b"[1],", b'{"a":1},', b"{},"])
@pytest.mark.parametrize(
    "path", ["/v1/completions", "/v1/chat/completions", "/v1/responses", "/tokenize", "/detokenize"]
)
def test_too_many_parts_are_counted(client, path, part):
    body = b'{"prompt":[' + part * MOST + b"1]}"
    refused = client.post(path, content=body, headers=JSON)
    assert refused.status_code == 400
    assert "brackets, braces and colons, and may have 524,288" in refused.json()["error"]["message"]


def test_a_router_decodes_no_such_body_either():
    router = RunningRouter(["http://127.0.0.1:9"])
    try:
        with router.client() as client:
            refused = client.post("/v1/completions", content=b'{"prompt":[' + b"[1]," * MOST + b"[1]]}", headers=JSON)
            assert refused.status_code == 400
            assert "split it into several requests" in refused.json()["error"]["message"]
    finally:
        router.close()


def test_where_longer_bodies_are_taken_they_may_have_more_parts():
    body = b"[]" * MOST + b"[]"
    with pytest.raises(ApiError, match="524,289 brackets"):
        check_parts(body, most_bytes=32 << 20)
    check_parts(body, most_bytes=64 << 20)


def test_a_long_text_of_json_is_none(client):
    text = json.dumps([{"name": "a parameter", "type": "string"}] * 100_000)
    refused = client.post("/v1/completions", json={"prompt": text})
    assert "is longer than the longest context" in refused.json()["error"]["message"], "and that is all"


def test_choices_that_no_grammar_has_room_for_are_counted_and_not_written(client):
    refused = client.post("/v1/completions", json={"prompt": "a", "structured_outputs": {"choice": ["a"] * 20_000}})
    assert refused.status_code == 400
    assert (
        refused.json()["error"]["message"] == "structured_outputs.choice may hold 16,384 texts and no more, not 20,000"
    )
