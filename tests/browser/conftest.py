"""A headless Chromium, and a server with tiers to look at. `make test-browser` runs these tests."""

import shutil

import pytest

from octavo.engine import save_tiny_model

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny-gemma3"
    save_tiny_model("gemma3", folder)
    return folder


@pytest.fixture
def open_browser(tmp_path):
    """A function that opens one, of a size and in light or dark; it is closed after the test."""
    from selenium import webdriver  # which only these tests need
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    opened = []

    def open_one(*, width=1280, height=900, dark=False):
        options = Options()
        options.binary_location = shutil.which("chromium")
        profile = tmp_path / f"profile-{len(opened)}"
        for flag in [*_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        opened.append(driver)
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        return driver

    yield open_one
    for driver in opened:
        driver.quit()
