"""The router's page in a real browser: the fleet, and why requests went where they did."""

import pytest

pytest.importorskip("selenium", reason="needs a browser: make test-browser")

from selenium.webdriver.common.by import By

from rigs.browsing import text_of, texts_of, wait
from rigs.running_router import RoutedEngine, RunningRouter
from rigs.running_server import MODEL

pytestmark = pytest.mark.browser


def open_live(browser, router):
    browser.get(router.url)
    wait(browser, lambda b: text_of(b, "health") == "live")
    return browser


@pytest.fixture(scope="module")
def engines(model_folder):
    engines = [RoutedEngine(model_folder) for _ in range(2)]
    yield engines
    for engine in engines:
        engine.close()


@pytest.fixture(scope="module")
def router(engines):
    router = RunningRouter([engine.url for engine in engines])
    try:
        router.wait_until_known(2)
        with router.client() as client:
            for tail in ([], [7] * 40):
                body = {"model": MODEL, "prompt": [5] * 200 + tail, "max_tokens": 2}
                assert client.post("/v1/completions", json=body).status_code == 200
                router.wait_until_told(engines)
        yield router
    finally:
        router.close()


def test_engines_and_decisions_are_shown(router, engines, open_browser):
    browser = open_live(open_browser(), router)
    last = router.look()["decisions"][-1]
    assert browser.title == f"Fleet of {MODEL} · Octavo"
    assert [text_of(browser, name) for name in ("ready", "open", "requests", "retries")] == ["2", "0", "2", "0"]
    assert text_of(browser, "resumed").endswith("%")
    shown = texts_of(browser, ".engine")
    assert [engine.name in text for engine, text in zip(engines, shown, strict=True)] == [True, True]
    assert sum("blocks in device" in text for text in shown) == 1
    newest = texts_of(browser, ".decision")[0]
    choice = last["choice"]
    assert choice["resumed_tokens"] > 0
    assert f"{choice['engine']} resumes {choice['resumed_tokens']} of {last['num_tokens']} tokens" in newest
    assert all(engine.name in newest for engine in engines)
    assert newest.count("first token in") == 2
    assert texts_of(browser, "#links a") == ["metrics", "fleet"]


def test_an_engine_that_is_drained_is_shown_so(router, engines, open_browser):
    browser = open_live(open_browser(), router)
    with router.client() as client:
        client.post(f"/fleet/{engines[0].name}/drain")
        wait(browser, lambda b: "draining" in texts_of(b, ".engine")[0])
        assert text_of(browser, "not-ready") == "of 2 take requests"
        client.delete(f"/fleet/{engines[0].name}/drain")
        wait(browser, lambda b: text_of(b, "not-ready") == "all take requests")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 1280])
def test_it_fits_its_window(router, open_browser, width, dark):
    browser = open_live(open_browser(width=width, height=600, dark=dark), router)
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    wide = "return [...document.querySelectorAll('.panel')].filter(p => p.scrollWidth > p.clientWidth).length"
    assert browser.execute_script(wide) == 0
    assert browser.get_log("browser") == []


def test_the_key_is_asked_for(engines, open_browser):
    router = RunningRouter([engine.url for engine in engines], api_key="secret")
    try:
        browser = open_browser()
        browser.get(router.url)
        field = wait(browser, lambda b: b.find_element(By.ID, "key"))
        wait(browser, lambda _: field.is_displayed())
        assert not browser.find_element(By.ID, "main").is_displayed()
        field.send_keys("secret\n")
        wait(browser, lambda b: text_of(b, "health") == "live")
    finally:
        router.close()
