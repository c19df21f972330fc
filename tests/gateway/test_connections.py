"""Gateways that are gone without a word."""

import logging
import signal
import subprocess
import sys

import pytest

pytest.importorskip("envoy", reason="needs octavo[epp]: make test-fleet")

import grpc

from rigs.processes import bound
from rigs.running_envoy import RunningPicker
from rigs.running_router import RoutedEngine

pytestmark = pytest.mark.fleet

GATEWAY = """
import sys, threading
import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc, external_processor_pb2_grpc

def head():
    yield ext_proc.ProcessingRequest(request_headers=ext_proc.HttpHeaders(end_of_stream=True))
    threading.Event().wait()

with grpc.insecure_channel(sys.argv[1]) as channel:
    for answer in external_processor_pb2_grpc.ExternalProcessorStub(channel).Process(head()):
        print(answer.WhichOneof("response"), flush=True)
"""


def test_the_requests_of_a_gateway_that_is_gone_do_not_count_for_long(folder, running, monkeypatch):
    monkeypatch.setattr("octavo.gateway.server._PING_EVERY_MS", 500)
    monkeypatch.setattr("octavo.gateway.server._PING_TIMEOUT_MS", 500)
    picker = running(RunningPicker([running(RoutedEngine(folder)).url]))
    picker.wait_until_known(1)
    command = bound([sys.executable, "-c", GATEWAY, picker.address])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout.readline() == "request_headers\n"
        assert picker.ask(lambda server: server.admission.num_open) == 1
        gateway.send_signal(signal.SIGSTOP)
        picker.wait_until(lambda server: server.admission.num_open == 0)
        loads = picker.ask(lambda server: list(server.fleet.placement.loads.values()))
        gateway.kill()
    assert [load.num_requests for load in loads] == [0]


def test_a_gateway_that_goes_away_in_the_middle_of_an_answer_is_no_error(running, caplog):
    """gRPC logs one such answer in hundreds, if its own news come in another order."""
    running(RunningPicker(["http://127.0.0.1:1"]))
    for error in (grpc.aio.InternalError("Failed execute_batch"), ValueError("another one")):
        logging.getLogger("grpc._cython.cygrpc").error("raised by servicer method", exc_info=error)
    assert [record.exc_info[0] for record in caplog.records if record.name.startswith("grpc")] == [ValueError]
