"""What a picker does while its fleet changes."""

import asyncio

import httpx

from octavo.gateway import Picker
from octavo.router import EngineAddress, Fleet
from octavo.server import ROUTER

URLS = ["http://one:8000", "http://two:8000"]


def test_an_engine_that_leaves_while_addresses_are_looked_up_is_not_picked():
    async def pick():
        async with httpx.AsyncClient() as client:
            fleet = Fleet(EngineAddress.parse_all(URLS), client)
            for member in fleet.members.values():
                member.lost = ""

            async def look_up(name, port):
                fleet.set_engines(EngineAddress.parse_all(URLS[1:]))
                return {"10.0.0.1" if name == "one" else "10.0.0.2"}

            return await Picker(fleet, lambda _: None, fallbacks=1, look_up=look_up).pick(None, {})

    picked = asyncio.run(pick())
    assert picked.endpoints == ("10.0.0.2:8000",)
    assert list(picked.marks) == [ROUTER]  # its prompt is not known here: the engine counts it
