"""Many clients at once: some read to the end, some go away, some send rubbish. Nothing is left of any of them."""

import asyncio
import json

import httpx
import pytest

from rigs.running_server import ENDLESS, LONG_CONTEXT, serving

PATH = "/v1/completions"
NUM_CLIENTS = 64


async def read_whole(client, number):
    body = {"prompt": f"client {number % 8} asks", "max_tokens": 6, "temperature": 0}
    response = await client.post(PATH, json=body)
    assert response.status_code == 200
    return response.json()["choices"][0]["text"]


async def read_stream(client, number):
    body = {"prompt": f"client {number % 8} asks", "max_tokens": 6, "temperature": 0, "stream": True}
    text = ""
    async with client.stream("POST", PATH, json=body) as response:
        assert response.status_code == 200
        lines = [line async for line in response.aiter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    for line in lines[:-1]:
        text += json.loads(line.removeprefix("data: "))["choices"][0]["text"]
    return text


async def cut_stream(client, number):
    body = {"prompt": f"client {number} goes", "max_tokens": 400, "stream": True, "n": 1 + number % 3}
    async with client.stream("POST", PATH, json=body) as response:
        async for _ in response.aiter_lines():
            return


HEAD = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
JSON = {"content-type": "application/json"}


async def go_away(client, number):
    """While it waits for a whole answer: the request has been sent, and is never read."""
    _, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    body = json.dumps({"prompt": f"client {number} leaves", "max_tokens": 400}).encode()
    writer.write(HEAD % (PATH.encode(), len(body)) + body)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def send_half(client, number):
    _, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    writer.write(HEAD % (PATH.encode(), 1000) + b"{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def send_rubbish(client, number):
    content = [b"{", b"\x00" * 1000, b'{"prompt": ' + b"[" * 50_000, b""][number % 4]
    assert (await client.post(PATH, content=content, headers=JSON)).status_code == 400


async def send_too_much(client, number):
    response = await client.post(PATH, json={"prompt": [5] * 10_000, "max_tokens": 4})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


BEHAVIOURS = [read_whole, read_stream, cut_stream, go_away, send_half, send_rubbish, send_too_much, read_stream]


async def be_clients(url):
    limits = httpx.Limits(max_connections=NUM_CLIENTS)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as client:
        return await asyncio.gather(*(BEHAVIOURS[i % len(BEHAVIOURS)](client, i) for i in range(NUM_CLIENTS)))


@pytest.mark.parametrize("memory", [8 << 20, 2 << 20], ids=["roomy", "tight"])
def test_many_clients(model_folder, memory):
    with serving(model_folder, device_memory_bytes=memory, max_num_seqs=24) as server:
        texts = asyncio.run(be_clients(server.url))
        told = {}
        for number, text in enumerate(texts):
            if text is not None:
                assert told.setdefault(number % 8, text) == text
        server.wait_until_open(0)
        server.check_nothing_is_left()
        reasons = server.finished()
        assert reasons["length"] >= NUM_CLIENTS * 3 // 8
        assert "error" not in reasons


def test_a_client_that_goes_away_ends_its_request(model_folder):
    with serving(model_folder, max_model_len=LONG_CONTEXT) as server:
        with server.client() as client, client.stream("POST", PATH, json={"prompt": "a", **ENDLESS}) as response:
            next(response.iter_lines())
        server.wait_until_open(0)
        server.check_nothing_is_left()
        assert server.finished() == {"abort": 1}


def test_a_client_that_goes_away_before_the_first_token(server):
    before, gone = server.finished().get("abort", 0), server.count_gone()

    async def leave():
        async with httpx.AsyncClient(base_url=server.url, timeout=300) as client:
            await go_away(client, 0)

    with server.held_engine():
        asyncio.run(leave())
        server.wait_until_gone(gone + 1)
    server.check_nothing_is_left()
    assert server.finished().get("abort", 0) <= before + 1  # it may not have come into the queue
