"""Pages of named sites may use a server (`--cors-origin`), as browsers ask and check it; those of others may not."""

import pytest

from octavo.errors import InputError
from octavo.server import ServerConfig
from rigs.running_server import serving

COMPLETION = {"prompt": "a", "max_tokens": 3}
CHAT_PAGE = {"origin": "https://chat.example"}
ASKING = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,x-stainless-os"}


def allowed_by(response):
    return response.headers.get("access-control-allow-origin")


@pytest.mark.parametrize("stream", [False, True])
def test_a_page_of_a_friendly_site_may_compute_and_not_reset(friendly, stream):
    asked = friendly.options("/v1/completions", headers={**CHAT_PAGE, **ASKING})
    assert (asked.status_code, allowed_by(asked)) == (200, "https://chat.example")
    assert asked.headers["access-control-allow-headers"] == "content-type,x-stainless-os"
    answer = friendly.post("/v1/completions", json={**COMPLETION, "stream": stream}, headers=CHAT_PAGE)
    assert (answer.status_code, allowed_by(answer)) == (200, "https://chat.example")
    assert "x-octavo-ignored-fields" in answer.headers["access-control-expose-headers"]
    refused = friendly.post("/v1/completions", json={}, headers=CHAT_PAGE)
    assert (refused.status_code, allowed_by(refused)) == (400, "https://chat.example"), "the page reads why"
    assert friendly.post("/reset_prefix_cache", headers=CHAT_PAGE).status_code == 403
    assert friendly.get("/", headers={**CHAT_PAGE, "host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "origin", ["https://chat.example.evil", "http://chat.example", "https://chat.example:1", "null"]
)
def test_a_page_of_any_other_site_may_not(friendly, origin):
    asked = friendly.options("/v1/completions", headers={"origin": origin, **ASKING})
    assert (asked.status_code, allowed_by(asked)) == (400, None)
    answer = friendly.post("/v1/completions", json=COMPLETION, headers={"origin": origin})
    assert (answer.status_code, allowed_by(answer)) == (403, None)


def test_a_friendly_page_shows_the_key_if_there_is_one(model_folder):
    bounds = {"cors_origins": ("https://chat.example",)}
    with serving(model_folder, api_key="secret", bounds=bounds) as server, server.client() as client:
        assert client.options("/v1/completions", headers={**CHAT_PAGE, **ASKING}).status_code == 200
        refused = client.post("/v1/completions", json=COMPLETION, headers=CHAT_PAGE)
        assert (refused.status_code, allowed_by(refused)) == (401, "https://chat.example")
        shown = {**CHAT_PAGE, "authorization": "Bearer secret"}
        assert client.post("/v1/completions", json=COMPLETION, headers=shown).status_code == 200


@pytest.fixture(scope="module")
def friendly(model_folder):
    bounds = {"cors_origins": ("https://chat.example", "http://localhost:3000")}
    with serving(model_folder, bounds=bounds) as server, server.client() as client:
        yield client


@pytest.mark.parametrize(
    "origin",
    ["*", "chat.example", "https://chat.example/", "https://Chat.example", "https://a:443", "https://*.a", "null", "",
     "https://a@b", "https://", "https://é", "https://a:x", "https://a b", "https://[::1", "http://a?", "http://a#"],
)  # fmt: skip
def test_what_is_no_origin_is_refused(origin):
    with pytest.raises(InputError, match="cors_origin"):
        ServerConfig(model_name="m", cors_origins=(origin,))


def test_origins_of_addresses_and_apps_are_taken():
    ServerConfig(model_name="m", cors_origins=("http://[::1]:3000", "http://127.0.0.1", "chrome-extension://abc"))
