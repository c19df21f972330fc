"""The place of a store: the same words wherever it is the same store, and no passwords."""

import platform

import pytest

from octavo.errors import InputError
from octavo.stores.objects import ObjectsSpec
from octavo.stores.redis import RedisSpec


def place(spec, **settings):
    return spec.from_config(settings).config.place


def test_credentials_are_no_part_of_it():
    told = place(RedisSpec, url="redis://:secret@Store.net:6379/0?password=secret")
    assert told == place(RedisSpec, url="redis://store.net:6379/0/") == "redis://store.net:6379/0"


@pytest.mark.parametrize(
    ("spec", "one", "other"),
    [
        (RedisSpec, {"url": "redis://store:6379/0"}, {"url": "redis://store:6379/1"}),
        (RedisSpec, {"url": "unix:///run/redis?db=0"}, {"url": "unix:///run/redis?db=1"}),
        (ObjectsSpec, {"url": "s3://bucket/a"}, {"url": "s3://bucket/b"}),
        (ObjectsSpec, {"url": "s3://bucket/a"}, {"url": "s3://bucket/a", "endpoint": "https://store:9000"}),
    ],
)
def test_other_stores_are_other_places(spec, one, other):
    assert place(spec, **one) != place(spec, **other)


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        (RedisSpec, {"url": "redis://localhost:6379/0"}),
        (RedisSpec, {"url": "unix:///run/redis"}),
        (ObjectsSpec, {"url": "s3://bucket", "endpoint": "http://127.0.0.1:9000"}),
    ],
)
def test_what_only_one_machine_reaches_is_that_machines(spec, settings, monkeypatch):
    here = place(spec, **settings)
    monkeypatch.setattr(platform, "node", lambda: "elsewhere")
    assert place(spec, **settings) != here


def test_a_folder_counts_as_shared(monkeypatch):
    here = place(ObjectsSpec, url="file:///mnt/folder/")
    monkeypatch.setattr(platform, "node", lambda: "elsewhere")
    assert place(ObjectsSpec, url="file:///mnt/folder") == here


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://me:secret@store:6379/cache", "redis://***@store:6379/cache"),
        ("redis://store/0/1?password=secret&db=1", "redis://store/0/1?password=***&db=1"),
        ("rdis://:secr@et@store", "rdis://***@store"),
    ],
)
def test_what_is_no_place_is_refused_without_its_password(url, told):
    with pytest.raises(InputError) as refused:
        place(RedisSpec, url=url)
    assert str(refused.value).endswith(f"not {told!r}")
