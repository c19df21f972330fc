"""The page in a real browser: live, complete, calm about trouble, and alone: nothing comes from another host."""

import json
import threading

import pytest

pytest.importorskip("selenium", reason="needs a browser: make test-browser")

from selenium.webdriver.common.by import By

from rigs.browsing import text_of, texts_of, wait
from rigs.running_server import serving
from rigs.tier_report import REPORT

pytestmark = pytest.mark.browser


def wait_until_live(browser):
    wait(browser, lambda b: text_of(b, "health") == "live")


def complete(server, **body):
    with server.client() as client:
        wishes = {"prompt": "c" * 100, "max_tokens": 4, **body}
        assert client.post("/v1/completions", json=wishes).status_code == 200


@pytest.fixture(scope="module")
def server(model_folder):
    with serving(model_folder, read_offload=lambda: REPORT) as running:
        yield running


def test_everything_is_shown(server, open_browser):
    complete(server)
    complete(server)
    browser = open_browser()
    browser.get(server.url)
    wait_until_live(browser)
    assert browser.title == "tiny · Octavo"
    assert text_of(browser, "model") == "tiny"
    assert "96" in text_of(browser, "tokens-legend")
    assert "from device" in text_of(browser, "tokens-legend")
    groups = texts_of(browser, "#groups tr")
    kinds = [group.kind.replace("_", " ") for group in server.ask(lambda engine: engine.snapshot()).groups]
    assert len(groups) == len(kinds)
    assert all(kind in row for kind, row in zip(kinds, groups, strict=True))
    tiers = texts_of(browser, ".tier")
    assert [tier.split()[0] for tier in tiers] == ["device", "memory", "disk"]
    assert "no space left" in tiers[2]
    assert "7 failures" in tiers[2]
    assert text_of(browser, "requests-about") == "none is open"
    assert drawn_colours(browser) > 2


def test_ten_minutes_are_drawn(server, open_browser):
    history, clock = server.server.service.history, server.server.service.metrics.latencies.clock
    history.note((server.ask(lambda engine: engine.snapshot()), REPORT), clock() + 1)
    complete(server)
    for later in (2, 3):
        history.note((server.ask(lambda engine: engine.snapshot()), REPORT), clock() + later)
    browser = open_browser()
    browser.get(server.url)
    wait(browser, lambda b: b.find_element(By.ID, "history").is_displayed())
    charts = texts_of(browser, ".chart")
    assert [chart.split("\n")[0] for chart in charts] == [
        "tokens per second",
        "resumed share",
        "time to first token",
        "between tokens",
        "bytes per second",
        "trouble",
    ]
    assert "p95" in charts[2]
    assert "stored" in charts[4]
    assert len(browser.find_elements(By.CSS_SELECTOR, ".chart polyline")) >= 8
    assert text_of(browser, "pool-about").count("empty") == 1
    assert texts_of(browser, "#links a") == ["metrics", "plan", "state"]


def test_it_is_live(server, open_browser):
    browser = open_browser()
    browser.get(server.url)
    wait_until_live(browser)
    stop = threading.Event()

    def keep_asking():
        while not stop.is_set():
            complete(server, prompt="abc", max_tokens=500, ignore_eos=True)

    asking = threading.Thread(target=keep_asking)
    asking.start()
    try:
        wait(browser, lambda b: text_of(b, "running") == "1")
        wait(browser, lambda b: "cmpl-" in text_of(b, "requests"))
    finally:
        stop.set()
        asking.join()
    wait(browser, lambda b: text_of(b, "requests-about") == "none is open")
    assert text_of(browser, "running") == "0"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 600, 1280])
def test_it_fits_its_window(server, open_browser, width, dark):
    browser = open_browser(width=width, height=600, dark=dark)
    browser.get(server.url)
    wait_until_live(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    wide = "return [...document.querySelectorAll('.panel')].filter(p => p.scrollWidth > p.clientWidth).length"
    assert browser.execute_script(wide) == 0
    assert contrast(browser, "body") > 7
    assert contrast(browser, "#about") > 4.5


def test_nothing_comes_from_elsewhere_and_nothing_is_complained_about(server, open_browser):
    browser = open_browser()
    browser.get_log("performance")  # what its own first page asked for
    browser.get(server.url)
    wait_until_live(browser)
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert asked
    assert all(url.startswith((server.url, "data:")) for url in asked)
    assert browser.get_log("browser") == []


def test_a_server_that_goes_away(model_folder, open_browser):
    browser = open_browser()
    with serving(model_folder) as server:
        browser.get(server.url)
        wait_until_live(browser)
    wait(browser, lambda b: text_of(b, "health") == "no answer")
    assert text_of(browser, "model") == "tiny"


def test_the_key_is_asked_for(model_folder, open_browser):
    with serving(model_folder, api_key="secret") as server:
        browser = open_browser()
        browser.get(server.url)
        field = wait(browser, lambda b: b.find_element(By.ID, "key"))
        wait(browser, lambda _: field.is_displayed())
        assert not browser.find_element(By.ID, "main").is_displayed()
        field.send_keys("wrong\n")
        wait(browser, lambda b: b.find_element(By.ID, "wrong").is_displayed())
        field.clear()
        field.send_keys("secret\n")
        wait_until_live(browser)
        assert browser.find_element(By.ID, "main").is_displayed()
        browser.refresh()
        wait_until_live(browser)


def drawn_colours(browser):
    """How many colours the picture of the sheets has."""
    return browser.execute_script(
        """const canvas = document.getElementById("sheets"), pen = canvas.getContext("2d");
        const data = pen.getImageData(0, 0, canvas.width, canvas.height).data;
        return new Set(new Uint32Array(data.buffer)).size;"""
    )


def contrast(browser, selector):
    """Of an element's text with the page's ground, as WCAG counts."""
    pick = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    inks = browser.execute_script(pick, selector, "color"), browser.execute_script(pick, "body", "backgroundColor")
    lighter, darker = sorted(map(luminance, inks), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour):
    channels = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
