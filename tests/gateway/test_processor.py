"""What the processor answers to a Gateway's messages."""

import asyncio

import pytest

pytest.importorskip("envoy", reason="needs octavo[epp]: make test-fleet")

import httpx
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from octavo.gateway import Picker, PickerConfig
from octavo.gateway.processor import Processor
from octavo.http import Admission
from octavo.router import EngineAddress, Fleet

pytestmark = pytest.mark.fleet
URLS = ("http://one:8000", "http://two:8000")
HEAD, LAST_HEAD = ({"request_headers": {"end_of_stream": is_last}} for is_last in (False, True))
LAST_PIECE, TRAILERS = {"request_body": {"body": b"{}", "end_of_stream": True}}, {"request_trailers": {}}


async def look_up(name, port):
    return {"10.0.0.1" if name == "one" else "10.0.0.2"}


@pytest.mark.parametrize(
    ("told", "answers"),
    [
        ([HEAD, LAST_PIECE, TRAILERS], ["request_headers", "request_body", "request_trailers"]),
        ([HEAD, LAST_PIECE, LAST_PIECE], ["request_headers", "request_body"]),
        ([LAST_HEAD, LAST_HEAD], ["request_headers"]),
    ],
)
def test_a_request_whose_end_is_told_twice_counts_once(told, answers):
    """It counted twice, and once for ever."""

    async def messages():
        for one in told:
            yield ext_proc.ProcessingRequest(**one)

    async def process():
        async with httpx.AsyncClient() as client:
            fleet = Fleet(EngineAddress.parse_all(URLS), client)
            for member in fleet.members.values():
                member.lost = ""
            picker = Picker(fleet, lambda _: None, fallbacks=1, look_up=look_up)
            processor = Processor(picker, Admission(most_requests=9, most_bytes=9), PickerConfig(engines=URLS))
            seen = [answer.WhichOneof("response") async for answer in processor.Process(messages(), None)]
            return seen, {load.num_requests for load in fleet.placement.loads.values()}

    assert asyncio.run(process()) == (answers, {0})
