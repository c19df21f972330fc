"""What tests read of a page in a browser."""

from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE_S = 300


def text_of(browser, name):
    """Of the element with an id."""
    return browser.find_element(By.ID, name).text


def texts_of(browser, selector):
    """Of all elements, at one moment: the page draws many of them anew each second."""
    return browser.execute_script("return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)", selector)


def wait(browser, condition):
    return WebDriverWait(browser, PATIENCE_S, poll_frequency=0.1).until(condition)
