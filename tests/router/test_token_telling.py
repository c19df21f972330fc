"""Engines that do not tell the tokens of prompts in time: requests do not wait for them again and again."""

import asyncio

import httpx
import pytest

from octavo.http import EngineFacts
from octavo.router import EngineAddress, PromptReader
from octavo.router.fleet import Fleet
from octavo.router.token_telling import TokenTelling

BODY = b'{"model": "m", "messages": []}'
FACTS = EngineFacts(model="m", max_model_len=64, hash_algorithm="", hash_seed="")


def test_after_a_pause_one_prompt_asks_before_others_do():
    telling = TokenTelling()
    assert telling.may_be_asked(0.0)
    telling.was_late(0.0, 5.0)
    assert [telling.may_be_asked(now) for now in (5.0, 14.9, 15.0)] == [False, False, True]
    telling.ask(15.0)
    assert [telling.may_be_asked(now) for now in (15.0, 24.9, 25.0)] == [False, False, True]
    telling.told(16.0)
    assert telling.may_be_asked(16.0)


def test_an_engine_that_tells_others_meanwhile_is_not_at_fault():
    telling = TokenTelling()
    telling.told(3.0)
    telling.was_late(1.0, 6.0)
    assert telling.may_be_asked(6.0)
    telling.was_late(4.0, 9.0)
    assert not telling.may_be_asked(9.0)


async def trickle():
    while True:
        yield b" "
        await asyncio.sleep(0)


async def hang():
    await asyncio.Event().wait()
    yield b""


@pytest.mark.parametrize("silence", [hang, trickle])
@pytest.mark.parametrize("names", [("hangs",), ("hangs", "tells")])
def test_only_the_first_request_waits_for_an_engine_that_hangs(silence, names, monkeypatch, caplog):
    monkeypatch.setattr("octavo.router.prompt_reader._PATIENCE_S", 0.0)
    asked = []

    def answer(request):
        asked.append(request.url.host)
        if request.url.host == "hangs":
            return httpx.Response(200, content=silence())
        return httpx.Response(200, json={"tokens": [1, 2, 3]})

    async def read(times):
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            fleet = Fleet([EngineAddress.parse(f"http://{name}:1") for name in names], client)
            for member in fleet.members.values():
                member.lost, member.facts = "", FACTS
            reader = PromptReader(fleet)
            return [(await reader.read(BODY, {})).prompt.num_tokens for _ in range(times)]

    assert asyncio.run(read(3)) == ([0, 3, 3] if len(names) > 1 else [0, 0, 0])
    assert asked == ["hangs", *["tells"] * 2 * (len(names) - 1)]
    warned = [message for message in caplog.messages if message.startswith("engine hangs:1 ")]
    assert [message.partition(":1 ")[2][:56] for message in warned] == [
        "has not told the tokens of a prompt within 0 s: requests"
    ]
