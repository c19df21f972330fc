"""Envoy's messages, as other Gateways send them too."""

import pytest

pytest.importorskip("envoy", reason="needs octavo[epp]: make test-fleet")

from envoy.config.core.v3.base_pb2 import HeaderMap, HeaderValue
from envoy.service.ext_proc.v3.external_processor_pb2 import HttpHeaders

from octavo.gateway.messages import read_headers

pytestmark = pytest.mark.fleet


@pytest.mark.parametrize("told", [{"value": "Müller, 東京"}, {"raw_value": "Müller, 東京".encode()}])
def test_a_header_that_is_not_ascii_is_read_byte_for_byte(told):
    headers = HttpHeaders(headers=HeaderMap(headers=[HeaderValue(key="authorization", **told)]))
    assert read_headers(headers)["authorization"].encode("latin-1").decode() == "Müller, 東京"
