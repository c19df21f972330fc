"""The endpoint picker protocol, version 1.0, in Envoy's messages: those that a picker sends, and those it reads."""

from collections.abc import Iterator, Sequence

from envoy.config.core.v3.base_pb2 import HeaderValue, HeaderValueOption
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from envoy.type.v3.http_status_pb2 import HttpStatus

from octavo.http import ApiError, is_event_stream

DESTINATION = "x-gateway-destination-endpoint"
"""The header, and the key of the dynamic metadata, that tell a request's destination."""
_SERVED = "x-gateway-destination-endpoint-served"
_METADATA = "envoy.lb"
_SUBSET_METADATA = "envoy.lb.subset_hint"
_SUBSET = "x-gateway-destination-endpoint-subset"
_MOST_BYTES_OF_PIECE = 48 << 10
"""Envoy takes pieces of a body up to about 64 KB."""


def destination(endpoints: Sequence[str], headers: dict[str, str]) -> ext_proc.ProcessingResponse:
    """The answer to a request's head: its destination, and headers to add."""
    told = ",".join(endpoints)
    answer = ext_proc.ProcessingResponse(
        request_headers=ext_proc.HeadersResponse(
            response=ext_proc.CommonResponse(
                header_mutation=_headers({DESTINATION: told, **headers}), clear_route_cache=True
            )
        )
    )
    answer.dynamic_metadata.update({_METADATA: {DESTINATION: told}})
    return answer


def refusal(error: ApiError) -> ext_proc.ProcessingResponse:
    """An answer of the picker's own to the client; no engine gets the request."""
    headers = {"content-type": "application/json", **error.headers}
    return ext_proc.ProcessingResponse(
        immediate_response=ext_proc.ImmediateResponse(
            status=HttpStatus(code=int(error.status)), headers=_headers(headers), body=error.body
        )
    )


def request_pieces(pieces: Sequence[bytes], *, is_last: bool) -> Iterator[ext_proc.ProcessingResponse]:
    """The request's body, handed on unchanged. Its last piece ends it, if no trailers follow."""
    parts = [
        piece[at : at + _MOST_BYTES_OF_PIECE] for piece in pieces for at in range(0, len(piece), _MOST_BYTES_OF_PIECE)
    ]
    for number, part in enumerate(parts or [b""], 1):
        body = _piece(part, is_last=is_last and number >= len(parts))
        yield ext_proc.ProcessingResponse(request_body=body)


def response_piece(body: ext_proc.HttpBody) -> ext_proc.ProcessingResponse:
    """A piece of the answer's body, handed on unchanged."""
    return ext_proc.ProcessingResponse(response_body=_piece(body.body, is_last=body.end_of_stream))


REQUEST_TRAILERS = ext_proc.ProcessingResponse(request_trailers=ext_proc.TrailersResponse())
RESPONSE_HEADERS = ext_proc.ProcessingResponse(response_headers=ext_proc.HeadersResponse())
RESPONSE_TRAILERS = ext_proc.ProcessingResponse(response_trailers=ext_proc.TrailersResponse())


def read_headers(headers: ext_proc.HttpHeaders) -> dict[str, str]:
    """The headers by name, in small letters; values byte for byte, whether a Gateway tells bytes or text."""
    return {one.key: (one.raw_value or one.value.encode()).decode("latin-1") for one in headers.headers.headers}


def is_streamed(headers: ext_proc.HttpHeaders) -> bool:
    """Whether an answer comes token by token."""
    return is_event_stream(read_headers(headers).get("content-type", ""))


def read_subset(message: ext_proc.ProcessingRequest) -> frozenset[str] | None:
    """The endpoints that the Gateway limits a request to; None if it does not."""
    hints = message.metadata_context.filter_metadata
    if _SUBSET_METADATA not in hints or _SUBSET not in hints[_SUBSET_METADATA].fields:
        return None
    hint = hints[_SUBSET_METADATA].fields[_SUBSET]
    texts = [value.string_value for value in hint.list_value.values] or hint.string_value.split(",")
    return frozenset(text.strip() for text in texts if text.strip())


def read_served(message: ext_proc.ProcessingRequest) -> str:
    """The endpoint that answers, with the head of its answer; empty if the Gateway does not tell."""
    told = message.metadata_context.filter_metadata
    return (
        told[_METADATA].fields[_SERVED].string_value if _METADATA in told and _SERVED in told[_METADATA].fields else ""
    )


def _piece(body: bytes, *, is_last: bool) -> ext_proc.BodyResponse:
    streamed = ext_proc.StreamedBodyResponse(body=body, end_of_stream=is_last)
    return ext_proc.BodyResponse(
        response=ext_proc.CommonResponse(body_mutation=ext_proc.BodyMutation(streamed_response=streamed))
    )


def _headers(values: dict[str, str]) -> ext_proc.HeaderMutation:
    overwrite = HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD
    return ext_proc.HeaderMutation(
        set_headers=[
            HeaderValueOption(header=HeaderValue(key=name, raw_value=value.encode("latin-1")), append_action=overwrite)
            for name, value in values.items()
        ]
    )
