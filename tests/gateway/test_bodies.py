"""Bodies that a picker does not read."""

import pytest

pytest.importorskip("envoy", reason="needs octavo[epp]: make test-fleet")

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc, external_processor_pb2_grpc

from rigs.running_envoy import RunningPicker

pytestmark = pytest.mark.fleet

PIECE = b"[1]," * (1 << 16)


def test_a_body_of_too_many_parts_is_refused_before_it_is_decoded(running):
    picker = running(RunningPicker(["http://127.0.0.1:9"]))
    messages = [
        ext_proc.ProcessingRequest(request_headers=ext_proc.HttpHeaders()),
        ext_proc.ProcessingRequest(request_body=ext_proc.HttpBody(body=b'{"prompt":[')),
        *[ext_proc.ProcessingRequest(request_body=ext_proc.HttpBody(body=PIECE))] * 9,
        ext_proc.ProcessingRequest(request_body=ext_proc.HttpBody(body=b"[1]]}", end_of_stream=True)),
    ]
    with grpc.insecure_channel(picker.address) as channel:
        (answer,) = external_processor_pb2_grpc.ExternalProcessorStub(channel).Process(iter(messages))
    assert answer.immediate_response.status.code == 400
    assert b"brackets, braces and colons" in answer.immediate_response.body
