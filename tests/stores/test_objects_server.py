"""The object store tier over a real S3 server, where its packages are installed: Ceph's RADOS gateway."""

import asyncio
import time

import obstore
import pytest

from octavo.errors import TierError
from octavo.stores import Inventory, delete_items, expire
from octavo.stores.objects import ObjectsConfig, ObjectsKeeper, open_store
from octavo.tiers import spec_from_config
from rigs.objects_suite import ObjectsSuite


@pytest.mark.stores
@pytest.mark.timeout(300)  # a server that starts
class TestObjectsOnAServer(ObjectsSuite):
    machine_examples = 5

    @pytest.fixture(autouse=True)
    def use(self, server):
        self.endpoint = server

    def config(self, folder):
        return {"url": f"s3://octavo/{folder.parent.name}-{folder.name}", "endpoint": self.endpoint}


def check(server, **options):
    spec_from_config({"type": "objects", "url": "s3://octavo/check", "endpoint": server, **options}).check()


@pytest.mark.stores
@pytest.mark.timeout(300)
def test_a_store_of_more_than_one_page_is_listed_and_collected(server):
    """A page of a listing has 1,000 objects, and so has one request that deletes."""
    store = open_store(ObjectsConfig.from_mapping({"url": "s3://octavo/many", "endpoint": server}))
    names = [f"{'ab' * 16}/00000000/{'cd' * 16}/shared/{number:032x}/00/00/00" for number in range(1100)]

    async def fill():
        at_once = asyncio.Semaphore(16)

        async def put(name):
            async with at_once:
                await obstore.put_async(store, name, b"octavo")

        await asyncio.gather(*map(put, names))

    asyncio.run(fill())
    inventory = Inventory()
    keeper = ObjectsKeeper(store, "many", None)
    items = list(inventory.counting(keeper.entries()))
    assert sorted(found.name for found in items) == names
    expiry = expire(inventory, most_bytes=6 * 50, before_s=0, now_s=int(time.time()))
    gone = delete_items(keeper, filter(expiry.takes, items), is_dry=False, tell=lambda share: None)
    assert gone.count == 1050
    assert len(list(keeper.entries())) == 50


@pytest.mark.stores
@pytest.mark.timeout(300)
def test_what_is_wrong_is_said_with_the_remedy(server, monkeypatch):
    check(server)
    with pytest.raises(TierError, match=r"s3://nowhere/check.*give the right name in the url"):
        check(server, url="s3://nowhere/check")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(TierError, match="the secret key does not belong to the access key; give credentials"):
        check(server)
