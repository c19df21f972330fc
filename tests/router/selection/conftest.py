"""Two engines that publish what they hold."""

import pytest

from rigs.publishing_engine import WITH_STATE, WITHOUT_STATE, Publishing


@pytest.fixture
def long(running):
    return running(Publishing(WITHOUT_STATE))


@pytest.fixture
def short(running):
    return running(Publishing(WITH_STATE))
